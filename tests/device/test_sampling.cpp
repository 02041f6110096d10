// device: a session on the GPU samples the tokens that the sampler selects from all logits on the host, whether the
// device selects the best logits first (few candidates) or not. After all logits were requested the sample is the same.
#include <vector>

#include "runtime/sampler.h"
#include "tests/device/device_test.h"

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
    sampler.lay_out(vocab_size, measure);
    memory.resize(measure.used() + kCacheLine);
    const auto begin = reinterpret_cast<uintptr_t>(memory.data());
    Arena arena(reinterpret_cast<void*>(align_up(begin, kCacheLine)), measure.used());
    sampler.lay_out(vocab_size, arena);
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

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(sampling__draws_as_the_host_does),
      cmocka_unit_test(sampling__generate_draws_the_same),
  };
  return cmocka_run_group_tests_name("device/sampling", tests, nullptr, nullptr);
}
