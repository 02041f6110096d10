// models: one model of every architecture under dense, sink, raas and quest, against the logits of an independent
// implementation of both, on the CPU and on a GPU, through the C API. Tokens were chosen so that no decision of a
// policy is close (tests/golden/models/make_policy_golden.py), so results are right or wrong.
#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tests/device/device_test.h"
#include "tests/models/golden.h"
#include "tests/variants.h"

namespace {

using weir::test::golden_name;
using weir::test::kArchitectures;
using weir::test::read_into;

constexpr const char* kPolicies[] = {"dense", "sink", "raas", "quest"};

struct PolicyGolden {
  uint32_t n_tok = 0, n_prompt = 0, vocab = 0;
  std::string policy;
  uint32_t budget = 0;                         // tokens; 0: none
  std::map<std::string, std::string> options;  // of the policy
  std::vector<int32_t> tokens;
  std::vector<uint32_t> positions;  // whose logits are stored, ascending; the first one is that of the prompt's end
  std::vector<float> logits;        // [positions][vocab]
};

// The text "raas budget=112 alpha=0.3".
void read_options(const std::string& text, PolicyGolden& g) {
  std::istringstream words(text);
  words >> g.policy;
  for (std::string word; words >> word;) {
    const size_t sign = word.find('=');
    assert_true(sign != std::string::npos);
    const std::string key = word.substr(0, sign), value = word.substr(sign + 1);
    if (key == "budget") {
      g.budget = static_cast<uint32_t>(std::stoul(value));
    } else {
      g.options[key] = value;
    }
  }
}

PolicyGolden read_policy_golden(const std::string& path) {
  PolicyGolden g;
  std::ifstream in(path, std::ios::binary);
  char magic[4] = {};
  uint32_t head[6] = {};  // version, n_tok, n_prompt, positions, vocab, bytes of text
  read_into(in, magic);
  read_into(in, head);
  assert_memory_equal(magic, "WGLP", 4);
  assert_int_equal(head[0], 1);
  g.n_tok = head[1];
  g.n_prompt = head[2];
  g.vocab = head[4];
  std::string text(head[5], ' ');
  read_into(in, text);
  g.tokens.resize(g.n_tok);
  g.positions.resize(head[3]);
  g.logits.resize(size_t{head[3]} * g.vocab);
  read_into(in, g.tokens);
  read_into(in, g.positions);
  read_into(in, g.logits);
  assert_true(in.good());
  read_options(text, g);
  assert_true(!g.positions.empty() && g.positions.front() == g.n_prompt - 1 && g.positions.back() == g.n_tok - 1);
  return g;
}

weir_session* open_session(weir_model* model, const PolicyGolden& g, int32_t device, uint32_t flags) {
  std::vector<weir_key_value> options;
  for (const auto& [key, value] : g.options) options.push_back({key.c_str(), value.c_str()});
  weir_session_options o = WEIR_SESSION_OPTIONS_INIT;
  o.device = device;
  o.flags = flags;
  o.policy = g.policy.c_str();
  o.budget_tokens = g.budget;
  o.policy_options = options.empty() ? nullptr : options.data();
  o.n_policy_options = static_cast<uint32_t>(options.size());
  weir_session* session = nullptr;
  assert_ok(weir_session_create(model, &o, &session));
  return session;
}

struct Worst {
  double apart = 0;          // of all stored positions
  uint32_t n_other_top = 0;  // positions at which another token is the most probable one
  int64_t first_off = -1;    // first position beyond the bound
  bool ok() const { return first_off < 0 && n_other_top == 0; }
};

// The whole conversation, its prompt in pieces of `piece` tokens. To these policies prompts that follow each other are
// as one prompt, as long as it is attended whole.
Worst run(weir_session* session, const PolicyGolden& g, uint32_t piece, double bound) {
  Worst worst;
  size_t row = 0;
  for (uint32_t t = 0; t < g.n_tok;) {
    const uint32_t n = t < g.n_prompt ? std::min(piece, g.n_prompt - t) : 1;
    if (t < g.n_prompt) {
      assert_ok(weir_session_prefill(session, g.tokens.data() + t, n, nullptr, nullptr));
    } else {
      assert_ok(weir_session_step(session, g.tokens[t]));
    }
    t += n;
    if (t != g.positions[row] + 1) continue;
    const float* logits = nullptr;
    uint32_t n_logits = 0;
    assert_ok(weir_session_logits(session, &logits, &n_logits));
    assert_int_equal(n_logits, g.vocab);
    const auto c = weir::test::compare_logits({g.logits.data() + row * g.vocab, g.vocab}, logits);
    worst.apart = std::max(worst.apart, c.apart);
    worst.n_other_top += c.top_got != c.top_want ? 1 : 0;
    if (!(c.apart <= bound) && worst.first_off < 0) worst.first_off = t - 1;
    ++row;
  }
  assert_int_equal(row, g.positions.size());
  return worst;
}

bool report(const std::string& name, const char* prompt, const Worst& worst) {
  print_message("%-28s prompt %s: worst %.2e\n", name.c_str(), prompt, worst.apart);
  if (!worst.ok()) {
    print_error("%s, prompt %s: relative error %.3e; first beyond the bound: position %d; other top tokens: %u\n",
                name.c_str(), prompt, worst.apart, static_cast<int>(worst.first_off), worst.n_other_top);
  }
  return worst.ok();
}

// How far logits may be from the golden's, relative to the largest one of their position.
struct Bounds {
  double whole, by_token;  // by how the prompt is given
};

// On a slow device llama's are compared under all policies, and every other architecture under one of them by turns,
// or, with attention on the host, under quest.
bool is_compared(const std::string& name, uint32_t flags) {
  if (weir::test::every_variant() || name.starts_with("llama_")) return true;
  const std::string policy = golden_name(name).what;
  if (flags != 0) return policy == "quest";
  size_t turn = 0;
  while (turn < std::size(kArchitectures) && !name.starts_with(std::string(kArchitectures[turn]) + "_")) ++turn;
  return policy == kPolicies[turn % std::size(kPolicies)];
}

// With attention on the host there are no recurrent layers on a device.
bool has_recurrent_layers(weir_model* model) {
  weir_plan_info plan = WEIR_PLAN_INFO_INIT;
  assert_ok(weir_plan(model, nullptr, &plan));
  return plan.recurrent_bytes != 0;
}

// Every golden of a policy on one device; returns the names of their files.
std::vector<std::string> compare_all(weir_runtime* runtime, int32_t device, const Bounds& bounds, uint32_t flags = 0,
                                     bool by_token = true) {
  std::vector<std::string> checked;
  bool ok = true;
  for (const std::string& name : weir::test::golden_files()) {
    const std::string policy = golden_name(name).what;
    if (policy.empty() || policy == "bf16kv") continue;  // test_golden.cpp
    if (device != WEIR_DEVICE_CPU && !is_compared(name, flags)) continue;
    const PolicyGolden g = read_policy_golden(WEIR_GOLDEN_MODELS + name);
    assert_string_equal(g.policy.c_str(), policy.c_str());
    weir_model* model = nullptr;
    assert_ok(
        weir_model_open(runtime, (WEIR_GOLDEN_MODELS + golden_name(name).model + ".gguf").c_str(), nullptr, &model));
    if (flags != 0 && has_recurrent_layers(model)) {
      weir_model_close(model);
      continue;
    }
    weir_session* session = open_session(model, g, device, flags);
    ok = report(name, "whole", run(session, g, g.n_prompt, bounds.whole)) && ok;
    if (by_token) {
      assert_ok(weir_session_reset(session));
      ok = report(name, "token by token", run(session, g, 1, bounds.by_token)) && ok;
    }
    weir_session_destroy(session);
    weir_model_close(model);
    checked.push_back(name);
  }
  assert_true(ok);
  return checked;
}

void policy_golden__logits_on_the_cpu(void** state) {
  auto* f = static_cast<fixture*>(*state);
  // As in test_golden.cpp: the order of f32 sums now and then moves a key or value to the neighbouring bf16 number.
  const std::vector<std::string> checked = compare_all(f->runtime, WEIR_DEVICE_CPU, {2e-3, 2e-3});
  for (const char* arch : kArchitectures) {
    for (const std::string policy : kPolicies) {
      const bool found = std::any_of(checked.begin(), checked.end(), [&](const std::string& name) {
        return name.starts_with(std::string(arch) + "_") && golden_name(name).what == policy;
      });
      if (!found) fail_msg("tests/golden/models has no golden of architecture %s under %s", arch, policy.c_str());
    }
  }
}

void policy_golden__logits_on_a_gpu(void**) {
  NEED_GPU();
  const weir_runtime_options options = gpu_runtime_options();
  weir_runtime* runtime = nullptr;
  assert_ok(weir_runtime_create(&options, &runtime));
  // A prompt of more than 8 tokens is multiplied in f16. Doing so in the implementation that made the goldens moves
  // logits by up to 9e-3, those at the prompt's end in smollm3_f32, and changes no decision. All else is nearly f32: an
  // error in the 15th bit of every input of a matrix moves them by up to 7e-3. The least visible mistake that the
  // goldens' README lists moves them by 3.6e-2.
  constexpr Bounds kBounds = {2e-2, 1e-2};
  const Bounds bounds = on_llvmpipe() ? Bounds{2e-3, 2e-3} : kBounds;  // Mesa's driver on the processor has f32 alone
  compare_all(runtime, test_device(), bounds, 0, !on_llvmpipe());
  compare_all(runtime, test_device(), bounds, WEIR_SESSION_HOST_ATTENTION, !on_llvmpipe());
  weir_runtime_destroy(runtime);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(policy_golden__logits_on_the_cpu),
                              cmocka_unit_test(policy_golden__logits_on_a_gpu)};
  return cmocka_run_group_tests_name("models_policy_golden", tests, open_fixture, close_fixture);
}
