// vulkan: what sessions give does not depend on how they are recorded. A barrier before every command leaves every bit
// as it is: where fewer stand, nothing that one command needs of another is missing. Sessions that step together have
// the bits that they have alone. Integer dot products round inputs of matrices to 15 bits, and change no more than
// that.
#include <algorithm>
#include <span>

#include "tests/vulkan/shim/shim_test.h"
#include "vulkan/context.h"

namespace {

using weir::vulkan::Context;

constexpr uint32_t kPromptTokens = 40, kSteps = 60;

const variant kPolicies[] = {{"dense", {}, 0}, {"quest", {{"skip_layers", "0"}}, 1}, {"raas", {{"alpha", "0.3"}}, 1}};

std::string golden_model(const char* name) { return std::string(WEIR_SOURCE_DIR "/tests/golden/models/") + name; }

// open_module.cpp.
const std::string& module_path() {
  static const std::string path = weir::test::program_folder() + "/open_module";
  return path;
}

// A model on that module.
class Model {
 public:
  explicit Model(const char* name) {
    weir_runtime_options options = gpu_runtime_options();
    options.backend_dir = module_path().c_str();
    assert_ok(weir_runtime_create(&options, &f_.runtime));
    assert_ok(weir_model_open(f_.runtime, golden_model(name).c_str(), nullptr, &f_.model));
  }
  ~Model() { close_gpu_fixture(&f_); }
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  // The logits after a prompt and after each step.
  std::vector<float> converse(const variant& v) const {
    weir_session* const session = open(v, 0);
    std::vector<float> all;
    take(session, all);
    for (uint32_t i = 0; i < kSteps; ++i) {
      assert_ok(weir_session_step(session, token(kPromptTokens + i, 0)));
      take(session, all);
    }
    weir_session_destroy(session);
    return all;
  }

  // The same of several conversations about different tokens, whose sessions step together or in turns.
  std::vector<float> converse(std::span<const variant> policies, uint32_t n_steps, bool together) const {
    std::vector<weir_session*> sessions;
    std::vector<float> all;
    for (uint32_t s = 0; s < policies.size(); ++s) sessions.push_back(open(policies[s], s));
    for (uint32_t i = 0; i < n_steps; ++i) {
      std::vector<weir_token> tokens;
      for (uint32_t s = 0; s < sessions.size(); ++s) tokens.push_back(token(kPromptTokens + i, s));
      if (together) assert_ok(weir_step_many(sessions.data(), tokens.data(), static_cast<uint32_t>(tokens.size())));
      for (uint32_t s = 0; s < sessions.size(); ++s) {
        if (!together) assert_ok(weir_session_step(sessions[s], tokens[s]));
        take(sessions[s], all);
      }
    }
    for (weir_session* session : sessions) weir_session_destroy(session);
    return all;
  }

 private:
  static weir_token token(uint32_t i, uint32_t conversation) {
    return static_cast<weir_token>((i * 37 + conversation * 101) % 251);
  }
  // With the conversation's prompt.
  weir_session* open(const variant& v, uint32_t conversation) const {
    const bool is_dense = std::strcmp(v.policy, "dense") == 0;
    const weir_session_options options = options_of(&v, WEIR_DEVICE_VULKAN, is_dense ? 0 : 80, 256);
    weir_session* session = nullptr;
    assert_ok(weir_session_create(f_.model, &options, &session));
    std::vector<weir_token> tokens;
    for (uint32_t i = 0; i < kPromptTokens; ++i) tokens.push_back(token(i, conversation));
    assert_ok(weir_session_prefill(session, tokens.data(), kPromptTokens, nullptr, nullptr));
    return session;
  }
  static void take(weir_session* session, std::vector<float>& all) {
    const float* logits = nullptr;
    uint32_t n = 0;
    assert_ok(weir_session_logits(session, &logits, &n));
    all.insert(all.end(), logits, logits + n);
  }

  fixture f_ = {nullptr, nullptr};
};

Context& context_of_module() {
  static Context* found = nullptr;
  if (found != nullptr) return *found;
  void* const module = dlopen((module_path() + "/libweir_vulkan.so").c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) fail_msg("%s", dlerror());
  const auto get = reinterpret_cast<Context* (*)()>(dlsym(module, "weir_vulkan_context"));
  assert_non_null(get);
  found = get();
  return *found;
}

void session_bits__a_barrier_before_every_command(void**) {
  NEED_GPU();
  Context& c = context_of_module();
  for (const char* name : {"gemma2_q8_0.gguf", "qwen2moe_q8_0.gguf"}) {
    const Model model(name);
    for (const variant& v : kPolicies) {
      if (name[0] == 'q' && &v != kPolicies) continue;  // experts: whatever the policy
      uint64_t n_barriers[2] = {};
      std::vector<float> logits[2];
      for (const bool always : {false, true}) {
        const uint64_t before = c.recorder.n_barriers();
        c.recorder.set_always_barrier(always);
        logits[always ? 1 : 0] = model.converse(v);
        c.recorder.set_always_barrier(false);
        n_barriers[always ? 1 : 0] = c.recorder.n_barriers() - before;
      }
      assert_true(n_barriers[1] > n_barriers[0] * 5 / 4);
      assert_int_equal(logits[0].size(), logits[1].size());
      if (std::memcmp(logits[0].data(), logits[1].data(), logits[0].size() * sizeof(float)) != 0)
        fail_msg("%s under %s: other bits with a barrier before every command", name, v.policy);
    }
  }
}

// Weights in integers and in f32, norms after matrices, experts.
void session_bits__together_as_alone(void**) {
  NEED_GPU();
  constexpr uint32_t kTogether = 48;  // the budgets are exceeded by then
  Context& c = context_of_module();
  for (const char* name : {"llama_q4_k_m_mix.gguf", "gemma2_q8_0.gguf", "qwen2moe_q8_0.gguf", "llama_f32.gguf"}) {
    const Model model(name);
    const auto converse = [&](bool together, bool always, uint64_t& n_barriers) {
      const uint64_t before = c.recorder.n_barriers();
      c.recorder.set_always_barrier(always);
      std::vector<float> logits = model.converse(kPolicies, kTogether, together);
      c.recorder.set_always_barrier(false);
      n_barriers = c.recorder.n_barriers() - before;
      return logits;
    };
    uint64_t n_alone = 0, n_together = 0;
    const std::vector<float> alone = converse(false, true, n_alone);
    for (const bool always : {false, true}) {
      const std::vector<float> together = converse(true, always, n_together);
      assert_int_equal(together.size(), alone.size());
      if (std::memcmp(together.data(), alone.data(), alone.size() * sizeof(float)) != 0)
        fail_msg("%s: other bits than alone%s", name, always ? ", with a barrier before every command" : "");
    }
    // GEMVs in integers are one for all sessions: a joint step is recorded besides, with fewer commands than a third of
    // what three sessions record for their prompts and steps. Without them there is none.
    const bool is_in_integers = std::strcmp(name, "llama_f32.gguf") != 0;
    if (is_in_integers ? n_together <= n_alone || 3 * (n_together - n_alone) >= n_alone : n_together > n_alone)
      fail_msg("%s: %llu commands alone, %llu together", name, static_cast<unsigned long long>(n_alone),
               static_cast<unsigned long long>(n_together));
  }
}

// Models whose matrices all have the integer kernels. The bound is that of test_policy_golden.cpp: an error in the
// 15th bit of every input of a matrix moves logits by up to 7e-3 of a position's largest.
void session_bits__dot_products_on_and_off(void**) {
  NEED_GPU();
  constexpr double kMaxApart = 1e-2;
  Context& c = context_of_module();
  const Model model("gemma2_q8_0.gguf");
  (void)model.converse(kPolicies[0]);  // opens the device
  if (!c.device.has_dot) {
    print_message("skipped: the device has no integer dot products\n");
    skip();
  }
  const std::vector<float> on = model.converse(kPolicies[0]);
  c.device.has_dot = false;
  const std::vector<float> off = model.converse(kPolicies[0]);
  c.device.has_dot = true;
  assert_int_equal(on.size(), off.size());
  const size_t vocab = on.size() / (kSteps + 1);
  double worst = 0.0;
  for (size_t row = 0; row < on.size(); row += vocab) {
    double largest = 0.0, apart = 0.0;
    for (size_t i = row; i < row + vocab; ++i) {
      largest = std::max(largest, std::fabs(double{off[i]}));
      const double difference = std::fabs(double{on[i]} - double{off[i]});
      if (!(difference <= apart)) apart = difference;
    }
    if (!(apart <= kMaxApart * largest))
      fail_msg("token %zu: %g apart, the largest logit is %g", row / vocab, apart, largest);
    worst = std::max(worst, apart / largest);
  }
  print_message("worst %.2e\n", worst);
  assert_true(worst > 0.0);  // it was off
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(session_bits__a_barrier_before_every_command),
                              cmocka_unit_test(session_bits__together_as_alone),
                              cmocka_unit_test(session_bits__dot_products_on_and_off)};
  return cmocka_run_group_tests_name("vulkan/session_bits", tests, nullptr, nullptr);
}
