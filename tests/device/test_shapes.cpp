// device: models of other shapes than the tiny reasoner. Groups of one to sixteen query heads, heads of 8 to 256
// elements, both rotations, head norms and biases, with random weights. The GPU is fed the CPU's tokens and must give
// its logits. The policies look at positions alone, so that no near tie of scores can make the two diverge.
#include <cstdio>
#include <string>
#include <vector>

#include "tests/device/random_model.h"

namespace {

using weir::test::distance;
using weir::test::logits_of;
using weir::test::RandomModel;

constexpr uint32_t kPrompt = 70;
const uint32_t kSteps = steps_at_most(60);

const RandomModel kShapes[] = {
    {"llama", 4, 4, 64, "f16"},
    {"qwen2", 5, 1, 64, "q8_0"},
    {"llama", 12, 2, 128, "q8_0"},
    {"qwen2", 7, 1, 128, "f16"},
    {"qwen3", 8, 1, 64, "bf16"},
    {"llama", 16, 1, 64, "q8_0"},
    {"qwen3", 14, 2, 128, "f32"},
    // Other sizes run in the kernel for the next larger one of 64, 128 and 256; groups above 8 are split.
    {"llama", 4, 1, 8, "f16"},
    {"qwen3", 12, 1, 24, "f16"},
    {"llama", 4, 4, 40, "q8_0"},
    {"qwen2", 4, 2, 72, "q8_0"},
    {"qwen3", 5, 1, 96, "q8_0"},
    {"llama", 14, 2, 112, "bf16"},
    {"qwen2", 3, 1, 160, "q8_0"},
    {"llama", 12, 1, 192, "f16"},
    {"qwen3", 4, 1, 256, "q8_0"},
    {"llama", 8, 1, 256, "f16"},
    {"qwen3", 11, 1, 64, "f16"},
    // Sinks of every kernel, and soft caps, of which heads of 64 and 128 elements have none in their own kernels.
    {"llama", 8, 1, 64, "q8_0", 2, 4096, false, false, true},
    {"qwen3", 6, 2, 128, "f16", 2, 4096, false, false, true},
    {"llama", 4, 1, 64, "f16", 2, 4096, false, false, true, 0.25f},
    {"llama", 12, 2, 128, "q8_0", 2, 4096, false, false, false, 1.0f, 2.0f},
    {"qwen3", 4, 1, 256, "q8_0", 2, 4096, false, false, true, 2.0f, 2.0f},
    {"llama", 5, 1, 96, "q8_0", 2, 4096, false, false, true, 1.0f},
};

void compare(weir_model* model, const RandomModel& shape, const char* policy, uint32_t budget) {
  weir_session* sessions[2];
  for (int i = 0; i < 2; ++i) {
    weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
    options.device = i == 0 ? WEIR_DEVICE_CPU : test_device();
    options.context_tokens = 512;
    options.policy = policy;
    options.budget_tokens = budget;
    assert_ok(weir_session_create(model, &options, &sessions[i]));
  }
  uint64_t state = 7;
  std::vector<weir_token> tokens(kPrompt + kSteps);
  for (weir_token& token : tokens) token = weir::test::random_token(state);
  for (weir_session* session : sessions)
    assert_ok(weir_session_prefill(session, tokens.data(), kPrompt, nullptr, nullptr));
  double worst = distance(logits_of(sessions[0]), logits_of(sessions[1]));
  for (uint32_t i = kPrompt; i < tokens.size(); ++i) {
    for (weir_session* session : sessions) assert_ok(weir_session_step(session, tokens[i]));
    const double d = distance(logits_of(sessions[0]), logits_of(sessions[1]));
    if (!(d <= worst)) worst = d;  // true for NaN too
  }
  std::printf("cuda: %s %u/%u heads of %u, %s, %s: logits at most %.4f of their rms apart\n", shape.architecture,
              shape.n_heads, shape.n_kv_heads, shape.head_dim, shape.type, policy, worst);
  // Keys and values are rounded to 8 bits on both sides, from numbers that differ in the 11th bit (the prompt's f16
  // GEMM) or the 15th.
  assert_true(worst < 0.05);
  for (weir_session* session : sessions) weir_session_destroy(session);
}

void logits_are_the_cpus(void** state) {
  NEED_GPU();
  const auto& shape = *static_cast<const RandomModel*>(*state);
  const std::string path = weir::test::write_random_model(shape);
  const weir_runtime_options options = gpu_runtime_options();
  weir_runtime* runtime = nullptr;
  weir_model* model = nullptr;
  assert_ok(weir_runtime_create(&options, &runtime));
  assert_ok(weir_model_open(runtime, path.c_str(), nullptr, &model));
  weir::test::bend(model, shape);
  compare(model, shape, "dense", 0);
  compare(model, shape, "sink", 64);  // drops tokens, so that the sinks' query is rotated otherwise
  weir_model_close(model);
  weir_runtime_destroy(runtime);
  std::remove(path.c_str());
}

void shapes__larger_heads_are_refused(void**) {
  const RandomModel shape = {"llama", 4, 1, 264, "f16"};
  const std::string path = weir::test::write_random_model(shape);
  const weir_runtime_options options = gpu_runtime_options();
  weir_runtime* runtime = nullptr;
  weir_model* model = nullptr;
  assert_ok(weir_runtime_create(&options, &runtime));
  assert_ok(weir_model_open(runtime, path.c_str(), nullptr, &model));
  weir_session_options session = WEIR_SESSION_OPTIONS_INIT;
  weir_plan_info plan = WEIR_PLAN_INFO_INIT;
  session.device = WEIR_DEVICE_AUTO;
  assert_ok(weir_plan(model, &session, &plan));
  assert_int_equal(plan.device, WEIR_DEVICE_CPU);
  session.device = test_device();
  if (why_no_gpu()[0] == '\0')
    assert_error(weir_plan(model, &session, &plan), WEIR_ERR_UNSUPPORTED, "heads of 264 elements");
  weir_model_close(model);
  weir_runtime_destroy(runtime);
  std::remove(path.c_str());
}

std::vector<float> cpu_logits(weir_model* model) {
  weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
  options.device = WEIR_DEVICE_CPU;
  options.context_tokens = 128;
  weir_session* session = nullptr;
  assert_ok(weir_session_create(model, &options, &session));
  uint64_t state = 7;
  std::vector<weir_token> tokens(kPrompt);
  for (weir_token& token : tokens) token = weir::test::random_token(state);
  assert_ok(weir_session_prefill(session, tokens.data(), kPrompt, nullptr, nullptr));
  const std::vector<float> logits = logits_of(session);
  weir_session_destroy(session);
  return logits;
}

// Without this a GPU that computes none of them could pass the tests above.
void shapes__sinks_and_soft_caps_matter(void**) {
  for (const RandomModel& shape : kShapes) {
    if (!shape.sinks && shape.soft_cap == 0.0f) continue;
    const std::string path = weir::test::write_random_model(shape);
    weir_runtime_options options = WEIR_RUNTIME_OPTIONS_INIT;
    weir_runtime* runtime = nullptr;
    weir_model* model = nullptr;
    assert_ok(weir_runtime_create(&options, &runtime));
    assert_ok(weir_model_open(runtime, path.c_str(), nullptr, &model));
    RandomModel some = shape;
    some.sinks = false;
    some.soft_cap = some.logit_soft_cap = 0.0f;
    const std::vector<float> plain = cpu_logits(model);
    const auto moves = [&](const RandomModel& bent) {
      weir::test::bend(model, bent);
      return distance(plain, cpu_logits(model));
    };
    if (shape.sinks) {
      some.sinks = true;
      assert_true(moves(some) > 0.15);
      some.sinks = false;
    }
    if (shape.soft_cap != 0.0f) {
      some.soft_cap = shape.soft_cap;
      assert_true(moves(some) > 0.15);
      some.soft_cap = 0.0f;
    }
    if (shape.logit_soft_cap != 0.0f) {
      some.logit_soft_cap = shape.logit_soft_cap;
      assert_true(moves(some) > 0.15);
    }
    weir_model_close(model);
    weir_runtime_destroy(runtime);
    std::remove(path.c_str());
  }
}

}  // namespace

int main() {
  std::vector<std::string> names;
  for (const RandomModel& shape : kShapes) names.push_back("shapes__" + weir::test::name_of(shape));
  std::vector<CMUnitTest> tests = {cmocka_unit_test(shapes__sinks_and_soft_caps_matter),
                                   cmocka_unit_test(shapes__larger_heads_are_refused)};
  for (size_t i = 0; i < names.size(); ++i)
    tests.push_back({names[i].c_str(), logits_are_the_cpus, nullptr, nullptr, const_cast<RandomModel*>(&kShapes[i])});
  return _cmocka_run_group_tests("device/shapes", tests.data(), tests.size(), nullptr, nullptr);
}
