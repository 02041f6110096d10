// runtime: what sessions on a device draw and tell of probabilities, without a device (host_module.cpp), whose steps
// have the bits of the processor's: the same tokens, from a part of the logits where that decides.
#include <dlfcn.h>

#include <string>
#include <vector>

#include "host_models.h"

namespace {

using namespace host_models;

constexpr uint32_t kPrompt = 70;
constexpr char kModel[] = WEIR_SOURCE_DIR "/tests/golden/models/llama_f32.gguf";

Session open_session(const Models& m, int32_t device) {
  weir_session_options o = WEIR_SESSION_OPTIONS_INIT;
  o.device = device;
  o.context_tokens = 512;
  o.batch_tokens = 64;
  weir_session* session = nullptr;
  assert_ok(weir_session_create(m.model, &o, &session));
  return Session(session);
}

void read_prompt(const Session& session, uint32_t first) {
  std::vector<weir_token> prompt;
  for (uint32_t i = 0; i < kPrompt; ++i) prompt.push_back(token(first + i));
  assert_ok(weir_session_prefill(session.get(), prompt.data(), kPrompt, nullptr, nullptr));
}

uint64_t bytes_moved() {
  void* module = dlopen((std::string(module_folder()) + "/libweir_cuda.so").c_str(), RTLD_NOW);
  assert_non_null(module);
  const auto get = reinterpret_cast<uint64_t (*)()>(dlsym(module, "weir_host_module_bytes"));
  assert_non_null(get);
  const uint64_t bytes = get();
  dlclose(module);
  return bytes;
}

// Masks that change from token to token; some leave few tokens, or one.
weir_status mask_some(void* user, const weir_mask_info* info) {
  const uint32_t kind = *static_cast<const uint32_t*>(user), turn = info->n_tokens;
  for (uint32_t token = 0; token < info->vocab_size; ++token) {
    const uint32_t mixed = (token * 2654435761u + (kind == 1 ? 0 : turn) * 40503u) >> 16;
    const bool allowed = kind == 3 ? turn % 4 == 3 || token == 40 + turn : mixed % (kind == 2 ? 97 : 3) == 0;
    if (!allowed) info->words[token / 32] &= ~(1u << token % 32);
  }
  return WEIR_OK;
}

struct Drawing {
  weir_sampling_options sampling = WEIR_SAMPLING_OPTIONS_INIT;
  weir_generate_options generate = WEIR_GENERATE_OPTIONS_INIT;
  uint32_t mask = 0;  // none
};

// Both answers event by event; returns how many tokens they have.
uint32_t compare_answers(const Session& host, const Session& device, uint32_t prompt, const Drawing& d,
                         const std::string& what) {
  uint32_t mask = d.mask;
  for (const Session* session : {&host, &device}) {
    read_prompt(*session, prompt);
    assert_ok(weir_session_set_sampling(session->get(), &d.sampling));
    assert_ok(weir_session_set_token_mask(session->get(), mask == 0 ? nullptr : mask_some, &mask));
    assert_ok(weir_session_begin(session->get(), &d.generate));
  }
  weir_event a = WEIR_EVENT_INIT, b = WEIR_EVENT_INIT;
  uint32_t n = 0;
  do {
    assert_ok(weir_session_next(host.get(), &a));
    assert_ok(weir_session_next(device.get(), &b));
    if (a.kind != b.kind || a.token != b.token || a.stop != b.stop)
      fail_msg("%s, token %u: %d, not %d", what.c_str(), a.index, b.token, a.token);
    assert_int_equal(a.n_top, b.n_top);
    assert_true(a.kind != WEIR_EVENT_TOKEN || a.n_top == d.generate.n_top);
    assert_memory_equal(&a.logprob, &b.logprob, sizeof(float));
    for (uint32_t k = 0; k < a.n_top; ++k)
      assert_true(a.top[k].token == b.top[k].token && a.top[k].logprob == b.top[k].logprob);
    n += a.kind == WEIR_EVENT_TOKEN ? 1 : 0;
  } while (a.kind != WEIR_EVENT_END);
  return n;
}

// Answers are the same whatever decides about their tokens, whether the device sends its best logits or all of them,
// and so is what they tell about probabilities.
void device_draws__draw_the_same_tokens(void**) {
  const Models m(kModel);
  const weir_token_bias lower[] = {{30, -2.0f}, {31, -100.0f}}, raise[] = {{30, 2.0f}, {31, -100.0f}};
  for (uint32_t i = 0; i < 96; ++i) {
    Drawing d;
    d.mask = i < 48 ? 0 : 1 + i / 2 % 4;
    weir_sampling_options& o = d.sampling;
    o.temperature = i % 2 == 0 ? 0.0f : 1.2f;
    o.top_k = i % 3 == 0 ? 0 : 12;
    o.min_p = i % 9 == 0 ? 0.2f : 0.0f;
    o.seed = i;
    o.bias = i % 4 == 1 ? lower : raise;
    o.n_bias = i % 4 == 0 ? 0 : 2;
    o.presence_penalty = i % 8 < 4 ? 0.0f : 0.5f;
    o.frequency_penalty = i % 16 < 8 ? 0.0f : 0.25f;
    d.generate.n_top = i % 5 == 0 ? 5 : 0;
    d.generate.min_tokens = i % 3 == 1 ? 20 : 0;
    d.generate.max_tokens = 30;
    const Session host = open_session(m, WEIR_DEVICE_CPU), device = open_session(m, WEIR_DEVICE_CUDA);
    compare_answers(host, device, i, d, "options " + std::to_string(i));
    weir_page_state of_host[8], of_device[8];
    uint32_t n_host = 0, n_device = 0;
    assert_ok(weir_session_pages(host.get(), of_host, 8, &n_host));
    assert_ok(weir_session_pages(device.get(), of_device, 8, &n_device));
    assert_int_equal(n_host, n_device);
    assert_memory_equal(of_host, of_device, n_host * sizeof(weir_page_state));
  }
}

// What decides about a token is a part of its logits, and no more comes to the host, or all of them where it takes
// them. A mask goes to the device when it has changed, and not with a token that is the best of all anyway.
void device_draws__send_what_decides(void**) {
  const Models m(kModel);
  weir_model_info info = WEIR_MODEL_INFO_INIT;
  assert_ok(weir_model_get_info(m.model, &info));
  const uint64_t all = uint64_t{4} * info.vocab_size, mask = (info.vocab_size + 31) / 32 * 4, one = 8, parts = 64 * 8;
  const weir_token_bias raise[] = {{30, 2.0f}, {31, -100.0f}};
  struct Case {
    const char* what;
    float temperature;
    uint32_t top_k;
    float min_p;
    uint32_t n_bias, mask, n_top;
    uint64_t most;  // bytes for each token
  };
  const Case cases[] = {
      {"greedy", 0.0f, 0, 0.0f, 0, 0, 0, 0},
      {"greedy, probabilities", 0.0f, 0, 0.0f, 0, 0, 5, 5 * one + parts + one},
      {"greedy, a mask that stays", 0.0f, 0, 0.0f, 0, 1, 0, one},
      {"greedy, masks", 0.0f, 0, 0.0f, 0, 4, 0, mask + one},
      {"top-k", 1.0f, 12, 0.0f, 0, 0, 0, 12 * one},
      {"top-k, probabilities", 1.0f, 12, 0.0f, 0, 0, 5, 12 * one + parts},
      {"top-k, more probabilities", 1.0f, 3, 0.0f, 0, 0, 5, 5 * one + parts},
      {"top-k, masks", 1.0f, 12, 0.0f, 0, 4, 0, mask + 12 * one},
      {"top-k, masks, probabilities", 1.0f, 12, 0.0f, 0, 4, 5, mask + 12 * one + 5 * one + parts + one},
      {"top-k, bias", 1.0f, 12, 0.0f, 2, 0, 0, 14 * one + 2 * one},
      {"top-k, bias, masks", 1.0f, 12, 0.0f, 2, 4, 0, mask + 14 * one + 2 * one},
      {"masks of few", 1.0f, 0, 0.0f, 0, 2, 0, mask + (info.vocab_size / 97 + 20) * one},
      {"all", 1.0f, 0, 0.0f, 0, 0, 0, all},
  };
  for (const Case& c : cases) {
    Drawing d;
    d.sampling.temperature = c.temperature;
    d.sampling.top_k = c.top_k;
    d.sampling.min_p = c.min_p;
    d.sampling.bias = raise;
    d.sampling.n_bias = c.n_bias;
    d.generate.n_top = c.n_top;
    d.generate.max_tokens = 20;
    d.generate.flags = WEIR_GENERATE_IGNORE_EOS;
    d.mask = c.mask;
    const Session host = open_session(m, WEIR_DEVICE_CPU), device = open_session(m, WEIR_DEVICE_CUDA);
    // What a step moves without a draw.
    Drawing greedy = d;
    greedy.sampling = WEIR_SAMPLING_OPTIONS_INIT;
    greedy.generate.n_top = greedy.mask = 0;
    const uint64_t start = bytes_moved();
    assert_int_equal(compare_answers(host, device, 3, greedy, c.what), 20);
    const uint64_t of_steps = bytes_moved() - start;
    assert_ok(weir_session_reset(host.get()));
    assert_ok(weir_session_reset(device.get()));
    const uint64_t before = bytes_moved();
    assert_int_equal(compare_answers(host, device, 3, d, c.what), 20);
    const uint64_t moved = bytes_moved() - before - of_steps, once = c.mask == 1 ? mask : 0;
    if (moved > 20 * c.most + once)
      fail_msg("%s: %llu bytes, not %llu", c.what, static_cast<unsigned long long>(moved),
               static_cast<unsigned long long>(20 * c.most + once));
    assert_true(c.most < all || moved == 20 * all);
  }
}

// A mask that allows nothing ends answers as on the processor, and so does one whose tokens have no number for a logit.
void device_draws__nothing_is_allowed(void**) {
  const Models m(kModel);
  const Session host = open_session(m, WEIR_DEVICE_CPU), device = open_session(m, WEIR_DEVICE_CUDA);
  const weir_token_bias forbid[] = {{30, -100.0f}, {31, -100.0f}};
  for (const Session* session : {&host, &device}) {
    read_prompt(*session, 1);
    const auto none = [](void*, const weir_mask_info* info) {
      std::fill_n(info->words, (info->vocab_size + 31) / 32, 0u);
      return weir_status{WEIR_OK};
    };
    assert_ok(weir_session_set_token_mask(session->get(), none, nullptr));
    weir_token token = -1;
    assert_int_equal(weir_session_sample(session->get(), &token), WEIR_ERR_STATE);
    const auto two = [](void*, const weir_mask_info* info) {
      std::fill_n(info->words, (info->vocab_size + 31) / 32, 0u);
      info->words[0] = 3u << 30;
      return weir_status{WEIR_OK};
    };
    assert_ok(weir_session_set_token_mask(session->get(), two, nullptr));
    for (const float temperature : {0.0f, 1.0f}) {
      for (const uint32_t n_bias : {2u, 1u}) {
        weir_sampling_options o = WEIR_SAMPLING_OPTIONS_INIT;
        o.temperature = temperature;
        o.bias = forbid;
        o.n_bias = n_bias;
        assert_ok(weir_session_set_sampling(session->get(), &o));
        token = -1;
        assert_int_equal(weir_session_sample(session->get(), &token), n_bias == 2 ? WEIR_ERR_STATE : WEIR_OK);
        assert_int_equal(token, n_bias == 2 ? -1 : 31);
      }
    }
  }
}

// Whatever fails on the way to a token loses the session, and every later call says so.
void device_draws__a_loss_is_remembered(void**) {
  const Models m(kModel);
  void* module = dlopen((std::string(module_folder()) + "/libweir_cuda.so").c_str(), RTLD_NOW);
  assert_non_null(module);
  const auto fail_at = reinterpret_cast<size_t (*)(uint32_t)>(dlsym(module, "weir_host_module_fail_at"));
  assert_non_null(fail_at);
  uint32_t mask = 4, n_lost = 0;
  for (uint32_t n = 1; n < 100; ++n) {
    const Session device = open_session(m, WEIR_DEVICE_CUDA);
    read_prompt(device, n);
    weir_sampling_options o = WEIR_SAMPLING_OPTIONS_INIT;
    o.temperature = 1.0f;
    o.top_k = 5;
    weir_generate_options g = WEIR_GENERATE_OPTIONS_INIT;
    g.n_top = 3;
    assert_ok(weir_session_set_sampling(device.get(), &o));
    assert_ok(weir_session_set_token_mask(device.get(), mask_some, &mask));
    assert_ok(weir_session_begin(device.get(), &g));
    (void)fail_at(n);
    weir_event event = WEIR_EVENT_INIT;
    const weir_status status = weir_session_next(device.get(), &event);
    (void)fail_at(0);
    if (status == WEIR_OK) break;
    assert_int_equal(status, WEIR_ERR_DEVICE_LOST);
    assert_int_equal(weir_session_next(device.get(), &event), WEIR_ERR_DEVICE_LOST);
    assert_int_equal(n, ++n_lost);
  }
  assert_in_range(n_lost, 8, 98);  // a copy of the mask, three kernels and two waits, the step and its wait
  dlclose(module);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(device_draws__draw_the_same_tokens),
      cmocka_unit_test(device_draws__send_what_decides),
      cmocka_unit_test(device_draws__nothing_is_allowed),
      cmocka_unit_test(device_draws__a_loss_is_remembered),
  };
  return cmocka_run_group_tests_name("runtime/device_draws", tests, nullptr, nullptr);
}
