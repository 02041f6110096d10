// device: a session on the GPU samples the tokens that the sampler selects from all logits on the host, whether the
// device selects the best logits first (few candidates) or not, under a mask, too. After all logits were requested the
// sample is the same. What events tell of probabilities is what all logits give.
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "runtime/logprobs.h"
#include "runtime/sampler.h"
#include "tests/device/random_model.h"

namespace {

using namespace weir;

const int kSteps = static_cast<int>(steps_at_most(120));

weir_sampling_options options(float temperature, uint32_t top_k, float penalty, uint32_t last_n) {
  weir_sampling_options o = WEIR_SAMPLING_OPTIONS_INIT;
  o.temperature = temperature;
  o.top_k = top_k;
  o.repeat_penalty = penalty;
  o.repeat_last_n = last_n;
  o.seed = 1234;
  return o;
}

// The model has 1664 tokens.
std::vector<weir_sampling_options> rows() {
  std::vector<weir_sampling_options> all = {
      options(1.0f, 1, 1, 0),    options(0.8f, 40, 1, 0),       options(1.5f, 40, 1.1f, 0),  options(5.0f, 1000, 1, 0),
      options(3.0f, 1024, 1, 0), options(3.0f, 900, 1.3f, 124), options(0.0f, 0, 1.2f, 64),  options(0.0f, 7, 1.2f, 1),
      options(2.0f, 1025, 1, 0), options(2.0f, 1000, 1.2f, 25), options(2.0f, 40, 0.8f, 64), options(2.0f, 1663, 1, 0),
      options(2.0f, 5000, 1, 0), options(1.0f, 0, 1, 0),        options(0.0f, 0, 1, 0),
  };
  all.push_back(options(0.5f, 0, 1.1f, 64));  // min_p alone
  all.back().min_p = 0.2f;
  all[2].top_p = 0.9f;
  all[3].min_p = 0.01f;
  // What only lowers logits needs a few more of the best, what may raise one all of them.
  static const weir_token_bias lower[] = {{30, -2.0f}, {31, -100.0f}}, raise[] = {{30, -2.0f}, {700, 4.0f}};
  for (const weir_token_bias* bias : {lower, raise}) {
    for (const float temperature : {0.0f, 1.5f}) {
      weir_sampling_options o = options(temperature, 40, 1, 64);
      o.bias = bias;
      o.n_bias = 2;
      o.frequency_penalty = 0.5f;
      o.presence_penalty = bias == lower ? 0.25f : -0.25f;
      all.push_back(o);
    }
  }
  return all;
}

// The sampler over its own memory.
struct HostSampler {
  std::vector<std::byte> memory;
  Sampler sampler;
  HostSampler(uint32_t vocab_size, weir_sampling_options o) {
    Arena measure;
    Arenas sizes = Arenas::all_in(measure);
    sampler.set_vocabulary(vocab_size);
    sampler.lay_out(sizes);
    memory.resize(measure.used() + kCacheLine);
    const auto begin = reinterpret_cast<uintptr_t>(memory.data());
    Arena arena(reinterpret_cast<void*>(align_up(begin, kCacheLine)), measure.used());
    Arenas arenas = Arenas::all_in(arena);
    sampler.lay_out(arenas);
    assert_true(check_sampling(o, vocab_size).ok());
    sampler.set(o);
  }
};

weir_token draw_on_host(HostSampler& host, weir_session* session) {
  const float* logits = nullptr;
  uint32_t n = 0;
  weir_token token = -1;
  assert_ok(weir_session_logits(session, &logits, &n));
  assert_true(host.sampler.sample(logits, token).ok());
  return token;
}

void sampling__draws_as_the_host_does(void**) {
  NEED_GPU();
  NEED_STEPS(kSteps, 3);
  fixture f;
  open_gpu_fixture(&f);
  uint64_t n_prompt = 0;
  weir_token* prompt = tokens_of(f.model, RULE_PROMPT, &n_prompt);
  weir_session_options on_device = WEIR_SESSION_OPTIONS_INIT;
  on_device.device = test_device();
  on_device.context_tokens = 1024;
  weir_session* session = nullptr;
  assert_ok(weir_session_create(f.model, &on_device, &session));
  for (const weir_sampling_options& row : rows()) {
    const float* logits = nullptr;
    uint32_t vocab_size = 0;
    assert_ok(weir_session_reset(session));
    assert_ok(weir_session_set_sampling(session, &row));
    assert_ok(weir_session_prefill(session, prompt, n_prompt, nullptr, nullptr));
    HostSampler host(1664, row);
    for (uint64_t i = 0; i < n_prompt; ++i) host.sampler.accept(prompt[i]);
    for (int step = 0; step < kSteps; ++step) {
      weir_token token = -1;
      // Before every third sample the logits are already on the host.
      if (step % 3 == 2) assert_ok(weir_session_logits(session, &logits, &vocab_size));
      assert_ok(weir_session_sample(session, &token));
      const weir_token want = draw_on_host(host, session);
      if (token != want)
        fail_msg("temperature %g, top_k %u, penalty %g, step %d: %d, not %d", static_cast<double>(row.temperature),
                 row.top_k, static_cast<double>(row.repeat_penalty), step, token, want);
      assert_ok(weir_session_step(session, token));
      host.sampler.accept(token);
    }
    assert_int_equal(vocab_size, 1664);
  }
  weir_session_destroy(session);
  free(prompt);
  close_gpu_fixture(&f);
}

// weir_session_generate samples the same tokens in a row, and allocates nothing for it.
void sampling__generate_draws_the_same(void**) {
  NEED_GPU();
  fixture f;
  open_gpu_fixture(&f);
  weir_session_options on_device = WEIR_SESSION_OPTIONS_INIT;
  on_device.device = test_device();
  on_device.context_tokens = 1024;
  for (const weir_sampling_options& row : rows()) {
    weir_session* sessions[2] = {nullptr, nullptr};
    weir_generate_options generate = WEIR_GENERATE_OPTIONS_INIT;
    weir_generate_result result = WEIR_GENERATE_RESULT_INIT;
    weir_memory_info memory = WEIR_MEMORY_INFO_INIT;
    std::vector<weir_token> generated;
    for (weir_session*& session : sessions) {
      assert_ok(weir_session_create(f.model, &on_device, &session));
      assert_ok(weir_session_set_sampling(session, &row));
      prefill_text(f.model, session, RULE_PROMPT);
    }
    generate.max_tokens = kSteps;
    generate.flags = WEIR_GENERATE_IGNORE_EOS;
    generate.user = &generated;
    generate.on_token = [](void* user, const weir_token_event* event) -> weir_status {
      if (event->token >= 0) static_cast<std::vector<weir_token>*>(user)->push_back(event->token);
      return WEIR_OK;
    };
    assert_ok(weir_session_generate(sessions[0], &generate, &result));
    assert_int_equal(generated.size(), kSteps);
    for (const weir_token want : generated) {
      weir_token token = -1;
      const float* logits = nullptr;
      assert_ok(weir_session_logits(sessions[1], &logits, nullptr));  // sample from all logits
      assert_ok(weir_session_sample(sessions[1], &token));
      assert_int_equal(token, want);
      assert_ok(weir_session_step(sessions[1], token));
    }
    assert_ok(weir_session_memory(sessions[0], &memory));
    assert_int_equal(memory.allocs_while_decoding, 0);
    for (weir_session* session : sessions) weir_session_destroy(session);
  }
  close_gpu_fixture(&f);
}

// Which of a vocabulary's tokens may follow n_tokens of an answer: about a third, always the same or others each time;
// few; hardly any but those of the first third; in turn all and one.
struct Mask {
  uint32_t kind;  // 0: there is no mask
  static constexpr uint32_t kKinds = 5;

  bool allows(uint32_t token, uint32_t n_tokens, uint32_t vocab_size) const {
    const uint32_t mixed = (token * 2654435761u + (kind == 1 ? 0 : n_tokens) * 40503u) >> 16;
    if (kind == 3) return mixed % (vocab_size / 20) == 0 || token == vocab_size - 1;
    if (kind == 4) return token < vocab_size / 3 || token % 1000 == 999;
    return kind == 5 ? n_tokens % 3 == 0 || token == 100 + n_tokens : mixed % 3 == 0;
  }
  static weir_status apply(void* user, const weir_mask_info* info) {
    const auto& mask = *static_cast<const Mask*>(user);
    for (uint32_t token = 0; token < info->vocab_size; ++token) {
      if (!mask.allows(token, info->n_tokens, info->vocab_size)) info->words[token / 32] &= ~(1u << token % 32);
    }
    return WEIR_OK;
  }
};

void compare_probs(const weir_event& event, const std::vector<float>& logits, uint32_t n_top, const std::string& what) {
  LogProbs want;
  want.compute(logits.data(), static_cast<uint32_t>(logits.size()), event.token, n_top);
  const auto differ = [](float a, float b) { return !(std::fabs(a - b) <= 1e-5f * std::fmax(1.0f, std::fabs(b))); };
  if (differ(event.logprob, want.logprob))
    fail_msg("%s: %.9g, not %.9g", what.c_str(), double{event.logprob}, double{want.logprob});
  assert_int_equal(event.n_top, want.n_top);
  for (uint32_t i = 0; i < want.n_top; ++i) {
    if (event.top[i].token != want.top[i].token || differ(event.top[i].logprob, want.top[i].logprob))
      fail_msg("%s: number %u is %d, %.9g, not %d, %.9g", what.c_str(), i, event.top[i].token,
               double{event.top[i].logprob}, want.top[i].token, double{want.top[i].logprob});
  }
}

// A session that answers, and its twin, whose logits all come to the host.
class Twins {
 public:
  explicit Twins(weir_model* model) {
    weir_session_options on_device = WEIR_SESSION_OPTIONS_INIT;
    on_device.device = test_device();
    on_device.context_tokens = 1024;
    for (weir_session*& session : sessions_) assert_ok(weir_session_create(model, &on_device, &session));
  }
  Twins(const Twins&) = delete;
  Twins& operator=(const Twins&) = delete;
  ~Twins() {
    for (weir_session* session : sessions_) weir_session_destroy(session);
  }

  void compare(const weir_sampling_options& row, Mask mask, uint32_t n_top, uint32_t n_tokens) {
    const weir_token prompt[] = {17, 300, 5, 44, 45, 46, 300, 9};
    for (weir_session* session : sessions_) {
      assert_ok(weir_session_reset(session));
      assert_ok(weir_session_prefill(session, prompt, std::size(prompt), nullptr, nullptr));
    }
    weir_generate_options generate = WEIR_GENERATE_OPTIONS_INIT;
    generate.max_tokens = n_tokens;
    generate.n_top = n_top;
    generate.flags = WEIR_GENERATE_IGNORE_EOS;
    assert_ok(weir_session_set_sampling(sessions_[0], &row));
    assert_ok(weir_session_set_token_mask(sessions_[0], mask.kind == 0 ? nullptr : Mask::apply, &mask));
    assert_ok(weir_session_begin(sessions_[0], &generate));
    const auto vocab_size = static_cast<uint32_t>(weir::test::logits_of(sessions_[1]).size());
    HostSampler host(vocab_size, row);
    for (const weir_token token : prompt) host.sampler.accept(token);
    for (uint32_t i = 0; i < n_tokens; ++i) {
      const std::vector<float> logits = weir::test::logits_of(sessions_[1]);
      std::vector<uint32_t> words(mask_words(vocab_size));
      for (uint32_t token = 0; token < vocab_size && mask.kind != 0; ++token) {
        if (mask.allows(token, i, vocab_size)) words[token / 32] |= 1u << token % 32;
      }
      weir_token want = -1;
      assert_true(host.sampler.sample(logits.data(), want, mask.kind == 0 ? nullptr : words.data()).ok());
      weir_event event = WEIR_EVENT_INIT;
      assert_ok(weir_session_next(sessions_[0], &event));
      assert_int_equal(event.kind, WEIR_EVENT_TOKEN);
      const std::string what = "mask " + std::to_string(mask.kind) + ", temperature " +
                               std::to_string(row.temperature) + ", top_k " + std::to_string(row.top_k) + ", step " +
                               std::to_string(i);
      if (event.token != want) fail_msg("%s: %d, not %d", what.c_str(), event.token, want);
      if (n_top != 0) compare_probs(event, logits, n_top, what);
      assert_ok(weir_session_step(sessions_[1], want));
      host.sampler.accept(want);
    }
    weir_memory_info memory = WEIR_MEMORY_INFO_INIT;
    assert_ok(weir_session_memory(sessions_[0], &memory));
    assert_int_equal(memory.allocs_while_decoding, 0);
  }

 private:
  weir_session* sessions_[2] = {nullptr, nullptr};
};

constexpr uint32_t kTops[] = {0, 1, 20, 64};

void sampling__masks_and_probabilities(void**) {
  NEED_GPU();
  fixture f;
  open_gpu_fixture(&f);
  {
    Twins twins(f.model);
    uint32_t i = 0;
    for (const weir_sampling_options& row : rows()) {
      // Every row with half of the masks, or one of them.
      for (uint32_t kind = on_llvmpipe() ? i % (Mask::kKinds + 1) : i % 2; kind <= Mask::kKinds;
           kind += on_llvmpipe() ? Mask::kKinds + 1 : 2, ++i)
        twins.compare(row, {kind}, kTops[i % 4], steps_at_most(8));
    }
  }
  close_gpu_fixture(&f);
}

// As many tokens as large models have: parts of them do not fit into the memory that a kernel's blocks share.
void sampling__of_a_large_vocabulary(void**) {
  NEED_GPU();
  weir::test::RandomModel shape = {"llama", 2, 1, 32, "f16"};
  shape.vocab_size = 151936;
  const std::string path = weir::test::write_random_model(shape);
  fixture f;
  const weir_runtime_options runtime = gpu_runtime_options();
  assert_ok(weir_runtime_create(&runtime, &f.runtime));
  assert_ok(weir_model_open(f.runtime, path.c_str(), nullptr, &f.model));
  {
    Twins twins(f.model);
    const std::vector<weir_sampling_options> all = rows();
    for (const size_t row : {size_t{1}, size_t{4}, size_t{6}, all.size() - 1}) {
      for (uint32_t kind = 0; kind <= Mask::kKinds; ++kind) {
        if (!on_llvmpipe() || kind == row % 4)
          twins.compare(all[row], {kind}, kTops[kind % 2 == 0 ? 3 : 0], steps_at_most(4));
      }
    }
  }
  close_gpu_fixture(&f);
  std::filesystem::remove(path);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(sampling__draws_as_the_host_does),
      cmocka_unit_test(sampling__generate_draws_the_same),
      cmocka_unit_test(sampling__masks_and_probabilities),
      cmocka_unit_test(sampling__of_a_large_vocabulary),
  };
  return cmocka_run_group_tests_name("device/sampling", tests, nullptr, nullptr);
}
