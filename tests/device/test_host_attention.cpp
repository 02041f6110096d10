// device: sessions whose attention is computed on the host. Their logits are those of the processor but for rounding,
// alone, together, and in two threads at once; models/test_policy_golden has the architectures. What such a session
// takes of the device does not grow with the context.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/device/open_model.h"

namespace {

const variant kRows[] = {
    {"dense", {}, 0},
    {"quest", {{"skip_layers", "0"}}, 1},
    {"lfps", {{"skip_layers", "0"}}, 1},
    {"raas", {{"recall", "on"}, {"digest", "minmax"}}, 2},  // a key that rounds otherwise has another sketch
    {"lfps", {{"skip_layers", "0"}, {"quota", "1024"}, {"eta", "1"}}, 3},  // attends everything
};
constexpr uint32_t kBudgets[] = {0, 128, 64, 128, 1024};
bool remembers(uint32_t row) { return row == 2 || row == 3; }
constexpr uint32_t kRowCount = sizeof(kRows) / sizeof(kRows[0]);
constexpr uint32_t kSteps = 48, kContext = 1024;
// Matrices of prompts are multiplied in f16; see models/test_policy_golden. With quantised weights the processor would
// round activations to 8 bits, and devices to 15.
constexpr double kApart = 4e-2;
// Narrower layers where the device is the processor: products of matrices are all that wider ones add.
const weir::test::RandomModel kShape = {"llama", on_llvmpipe() ? 4u : 8u, 2, on_llvmpipe() ? 32u : 64u, "f16", 2,
                                        12000};

weir_session* open_session(weir_model* model, uint32_t row, int32_t device) {
  weir_session_options options = options_of(&kRows[row], device, kBudgets[row], kContext);
  options.flags = WEIR_SESSION_HOST_ATTENTION;
  options.batch_tokens = 96;
  weir_session* session = nullptr;
  assert_ok(weir_session_create(model, &options, &session));
  return session;
}

std::vector<float> logits_of(weir_session* session) {
  const float* logits = nullptr;
  uint32_t n = 0;
  assert_ok(weir_session_logits(session, &logits, &n));
  return {logits, logits + n};
}

// The logits before each step, and after the last one.
using Script = std::vector<std::vector<float>>;

Script converse(weir_session* session, const std::vector<weir_token>& prompt, const std::vector<weir_token>& steps) {
  Script script;
  assert_ok(weir_session_prefill(session, prompt.data(), prompt.size(), nullptr, nullptr));
  script.push_back(logits_of(session));
  for (const weir_token token : steps) {
    assert_ok(weir_session_step(session, token));
    script.push_back(logits_of(session));
  }
  return script;
}

// Where matrices of prompts are multiplied in f16, two pages or tokens of nearly equal scores change places: random
// weights give many of these, and the logits of such a step differ by up to 0.5. There most steps of quest must agree.
// lfps and raas remember each such step, in their tables and by the pages that leave: lfps is compared where it attends
// everything, and raas by models/test_policy_golden, whose tokens leave no decision close. With the same products every
// policy has the bits of the processor (runtime/test_host_attention).
constexpr double kShareOfSelecting = 0.75;

void assert_near(const Script& got, const Script& want, const variant& row) {
  assert_int_equal(got.size(), want.size());
  std::vector<double> apart;
  for (size_t i = 0; i < got.size(); ++i)
    apart.push_back(logits_apart(got[i].data(), want[i].data(), static_cast<uint32_t>(want[i].size())));
  std::sort(apart.begin(), apart.end());
  const bool selects = std::strcmp(row.policy, "quest") == 0;
  const double at = selects && rounds_prompts_to_f16() ? kShareOfSelecting : 1.0;
  const double most = apart[static_cast<size_t>(at * static_cast<double>(apart.size() - 1))];
  print_message("%s: median %.2e, worst %.2e, of %.0f %% at most %.2e\n", row.policy, apart[apart.size() / 2],
                apart.back(), 100 * at, most);
  if (!(most <= kApart)) fail_msg("%s: %.3e apart", row.policy, most);
}

struct Texts {
  std::vector<weir_token> prompt, steps;
};

weir_token token(uint32_t i) { return static_cast<weir_token>(i * 2654435761u % weir::test::kVocab); }

Texts make_texts() {
  Texts t;
  for (uint32_t i = 0; i < 310; ++i) t.prompt.push_back(token(i));
  for (uint32_t i = 0; i < kSteps; ++i) t.steps.push_back(token(i * 7 + 3));
  return t;
}

void host_attention__logits_are_those_of_the_processor(void**) {
  NEED_GPU();
  const weir::test::OpenModel m(kShape);
  const fixture& f = m.f;
  const Texts t = make_texts();
  for (uint32_t row = 0; row < kRowCount; ++row) {
    if (remembers(row) && rounds_prompts_to_f16()) continue;
    weir_session *cpu = open_session(f.model, row, WEIR_DEVICE_CPU), *gpu = open_session(f.model, row, test_device());
    const Script want = converse(cpu, t.prompt, t.steps);
    assert_near(converse(gpu, t.prompt, t.steps), want, kRows[row]);
    weir_session_destroy(cpu);
    weir_session_destroy(gpu);
  }
}

// Steps of all rows as one call, whose matrices read their weights once, have the bits of steps alone.
void host_attention__steps_together(void**) {
  NEED_GPU();
  const weir::test::OpenModel m(kShape);
  const fixture& f = m.f;
  const Texts t = make_texts();
  weir_session *alone[kRowCount], *together[kRowCount];
  for (uint32_t row = 0; row < kRowCount; ++row) {
    for (weir_session** session : {&alone[row], &together[row]}) {
      *session = open_session(f.model, row, test_device());
      assert_ok(weir_session_prefill(*session, t.prompt.data(), t.prompt.size() - row, nullptr, nullptr));
    }
  }
  for (uint32_t i = 0; i + kRowCount < kSteps; ++i) {
    assert_ok(weir_step_many(together, t.steps.data() + i, kRowCount));
    for (uint32_t row = 0; row < kRowCount; ++row) {
      assert_ok(weir_session_step(alone[row], t.steps[i + row]));
      if (logits_of(alone[row]) != logits_of(together[row])) fail_msg("%s: step %u", kRows[row].policy, i);
    }
  }
  for (uint32_t row = 0; row < kRowCount; ++row) {
    weir_session_destroy(alone[row]);
    weir_session_destroy(together[row]);
  }
}

// Two runtimes in two threads share the device's queue; threads of one runtime would take turns.
void host_attention__in_two_threads(void**) {
  NEED_GPU();
  const weir::test::OpenModel m[] = {weir::test::OpenModel(kShape), weir::test::OpenModel(kShape)};
  const Texts t = make_texts();
  weir_session* session[3] = {};
  for (uint32_t i = 0; i < 3; ++i) session[i] = open_session(m[i % 2].f.model, 0, test_device());
  const Script want = converse(session[2], t.prompt, t.steps);
  Script got[2];
  std::thread other([&] { got[1] = converse(session[1], t.prompt, t.steps); });
  got[0] = converse(session[0], t.prompt, t.steps);
  other.join();
  assert_true(got[0] == want);
  assert_true(got[1] == want);
  for (weir_session* s : session) weir_session_destroy(s);
}

// A prompt that the device attends in several parts, and the sums that a policy observes of them.
void host_attention__long_prompts(void**) {
  NEED_GPU();
  if (on_llvmpipe()) {
    print_message("skipped: a driver that computes on the processor takes ten minutes\n");
    skip();
  }
  const weir::test::OpenModel m(kShape);
  // h2o observes and lets nothing leave: whom it would choose depends on rounding.
  const variant rows[] = {
      {"dense", {}, 0}, {"h2o", {{"skip_layers", "0"}}, 1}, {"lfps", {{"quota", "12000"}, {"eta", "1"}}, 2}};
  std::vector<weir_token> prompt, steps;
  for (uint32_t i = 0; i < 16; ++i) steps.push_back(token(3 * i + 5));
  for (uint32_t i = 0; i < 9300; ++i) prompt.push_back(token(i));
  for (const variant& v : rows) {
    Script scripts[2];
    for (const int32_t device : {int32_t{WEIR_DEVICE_CPU}, test_device()}) {
      const uint32_t budget = v.n_options == 0 ? 0 : std::strcmp(v.policy, "h2o") == 0 ? 11000 : 12000;
      weir_session_options options = options_of(&v, device, budget, 12000);
      options.flags = WEIR_SESSION_HOST_ATTENTION;
      weir_session* session = nullptr;
      assert_ok(weir_session_create(m.f.model, &options, &session));
      scripts[device == WEIR_DEVICE_CPU ? 1 : 0] = converse(session, prompt, steps);
      weir_session_destroy(session);
    }
    assert_near(scripts[0], scripts[1], v);
  }
}

void host_attention__takes_what_the_plan_says(void**) {
  NEED_GPU();
  const weir::test::OpenModel m(kShape);
  const fixture& f = m.f;
  const std::vector<weir_token> prompt = make_texts().prompt;
  uint64_t device_bytes[2] = {};
  for (uint32_t i = 0; i < 2; ++i) {
    weir_session_options options = options_of(&kRows[0], test_device(), 0, i == 0 ? 4096 : 12000);
    options.flags = WEIR_SESSION_HOST_ATTENTION;
    options.batch_tokens = 64;
    weir_plan_info plan = WEIR_PLAN_INFO_INIT;
    weir_session* session = nullptr;
    weir_memory_info memory = WEIR_MEMORY_INFO_INIT;
    weir_memory_counters counters = WEIR_MEMORY_COUNTERS_INIT;
    assert_ok(weir_plan(f.model, &options, &plan));
    assert_ok(weir_session_create(f.model, &options, &session));
    assert_ok(weir_session_prefill(session, prompt.data(), prompt.size(), nullptr, nullptr));
    assert_ok(weir_session_step(session, 30));
    assert_ok(weir_session_memory(session, &memory));
    assert_int_equal(memory.bytes, plan.total_bytes);
    assert_int_equal(memory.device_bytes, plan.device_bytes);
    assert_int_equal(memory.allocs_while_decoding, 0);
    assert_ok(weir_runtime_memory(f.runtime, &counters));
    assert_int_equal(counters.device_bytes, plan.device_bytes + plan.device_weights_bytes);
    device_bytes[i] = plan.device_bytes;
    weir_session_destroy(session);
  }
  assert_int_equal(device_bytes[0], device_bytes[1]);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(host_attention__logits_are_those_of_the_processor),
      cmocka_unit_test(host_attention__steps_together),
      cmocka_unit_test(host_attention__in_two_threads),
      cmocka_unit_test(host_attention__long_prompts),
      cmocka_unit_test(host_attention__takes_what_the_plan_says),
  };
  return cmocka_run_group_tests_name("device_host_attention", tests, nullptr, nullptr);
}
