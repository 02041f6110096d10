// device: traces of steps on a device are those of the processor: the same pages, the same lists where nothing decides
// by scores that are nearly equal, and masses that differ by rounding. A step that a callback refuses is taken back.
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "api/handles.h"
#include "tests/device/device_test.h"
#include "tests/device/trace_copy.h"
#include "tests/policy/head_file.h"

namespace {

using weir::test::TraceCopies;
using weir::test::TracedLayer;

constexpr uint32_t kPrompt = 90, kSteps = 24;
// A mass is a share of 1; keys are rounded to bf16, and a device adds in another order.
constexpr float kMassDistance = 0.02f;

struct Close {
  void operator()(weir_session* session) const { weir_session_destroy(session); }
};
using Session = std::unique_ptr<weir_session, Close>;

const variant kRows[] = {
    {"dense", {}, 0},
    {"sink", {}, 0},
    {"raas", {}, 0},
    {"h2o", {{"skip_layers", "0"}}, 1},
    {"quest", {{"skip_layers", "0"}}, 1},
    {"quest", {{"skip_layers", "0"}, {"agg", "qhead"}}, 2},
    {"psa", {{"skip_layers", "0"}, {"mb", "1"}, {"eps", "0.9"}}, 3},
    {"psa", {{"skip_layers", "0"}, {"mb", "1"}, {"eps", "0.5"}, {"heads", "duo"}}, 4},
    {"hybrid", {{"skip_layers", "0"}}, 1},
    {"arkvale", {}, 0},
    {"raas", {{"heads", "duo"}}, 1},
    {"dense", {{"heads", "razor"}, {"heads_context_part", "0"}}, 2},
};

weir_session_trace_fn trace_function() {
  const auto set_trace = reinterpret_cast<weir_session_trace_fn>(weir_get_experimental("weir_session_trace"));
  assert_non_null(set_trace);
  return set_trace;
}

// A model so small that a driver on the processor takes seconds.
void open_golden_fixture(fixture& f) {
  const weir_runtime_options options = gpu_runtime_options();
  assert_ok(weir_runtime_create(&options, &f.runtime));
  assert_ok(weir_model_open(f.runtime, WEIR_SOURCE_DIR "/tests/golden/models/llama_f32.gguf", nullptr, &f.model));
}

weir_token token_of(uint32_t i) { return static_cast<weir_token>(i * 2654435761u % 199 + 20); }

Session open_session(const fixture& f, const variant& v, int32_t device, const TraceCopies* copies) {
  const weir::test::TestHeadFile heads("device_trace_heads.tsv");
  weir_session_options options = options_of(&v, device, 128, 256);
  if (strcmp(v.policy, "dense") == 0) options.budget_tokens = 0;
  std::vector<weir_key_value> given(v.options, v.options + v.n_options);
  if (weir::test::has_heads(given.data(), given.size())) {
    assert_true(heads.write_for(f.model));
    given.push_back({"heads_file", heads.path()});
  }
  options.policy_options = given.data();
  options.n_policy_options = static_cast<uint32_t>(given.size());
  options.flags = WEIR_SESSION_TRACE;
  weir_session* session = nullptr;
  assert_ok(weir_session_create(f.model, &options, &session));
  if (copies != nullptr) assert_ok(trace_function()(session, TraceCopies::see, const_cast<TraceCopies*>(copies)));
  std::vector<weir_token> prompt;
  for (uint32_t i = 0; i < kPrompt; ++i) prompt.push_back(token_of(i));
  assert_ok(weir_session_prefill(session, prompt.data(), prompt.size(), nullptr, nullptr));
  return Session(session);
}

// Where pages are chosen or leave by scores, a near tie may go either way; then masses cannot be compared.
struct Comparison {
  uint64_t lists = 0, same_lists = 0;
  float apart = 0.0f;

  void look(const TracedLayer& a, const TracedLayer& b) {
    assert_int_equal(a.n_tokens, b.n_tokens);
    assert_int_equal(a.listed.size(), b.listed.size());
    assert_int_equal(a.masses.size(), b.masses.size());
    const size_t group = a.masses.size() / a.listed.size(), of_stream = a.listed.size() / a.n_pages.size();
    for (size_t i = 0; i < a.listed.size(); ++i) {
      ++lists;
      const size_t stream = i / of_stream;
      if (a.listed[i] != b.listed[i] || a.first_pos[stream] != b.first_pos[stream]) continue;
      ++same_lists;
      for (size_t head = i * group; head < (i + 1) * group; ++head) {
        double sum = 0.0;
        for (size_t page = 0; page < a.masses[head].size(); ++page) {
          apart = std::max(apart, std::fabs(a.masses[head][page] - b.masses[head][page]));
          sum += double{b.masses[head][page]};
        }
        assert_true(sum < 1.001);
      }
    }
  }
};

void trace__is_that_of_the_processor(void**) {
  NEED_GPU();
  fixture f;
  open_golden_fixture(f);
  for (const variant& v : kRows) {
    TraceCopies a, b;
    const Session cpu = open_session(f, v, WEIR_DEVICE_CPU, &a), gpu = open_session(f, v, test_device(), &b);
    Comparison compared;
    for (uint32_t i = 0; i < kSteps; ++i) {
      for (const Session* s : {&cpu, &gpu}) assert_ok(weir_session_step(s->get(), token_of(kPrompt + i)));
      assert_int_equal(a.layers.size(), b.layers.size());
      assert_true(!a.layers.empty());
      for (size_t layer = 0; layer < a.layers.size(); ++layer) compared.look(a.layers[layer], b.layers[layer]);
    }
    const double part = static_cast<double>(compared.same_lists) / static_cast<double>(compared.lists);
    std::printf("%s: %.1f %% of the lists are the same, masses %.4f apart\n", describe(&v), 100.0 * part,
                static_cast<double>(compared.apart));
    if (!(part >= 0.9) || !(compared.apart <= kMassDistance)) fail_msg("%s: another trace", describe(&v));
  }
  close_gpu_fixture(&f);
}

// The session goes on as one whose step nobody refused.
void trace__a_refused_step_is_taken_back(void**) {
  NEED_GPU();
  fixture f;
  open_golden_fixture(f);
  TraceCopies copies;
  const Session session = open_session(f, kRows[0], test_device(), &copies),
                other = open_session(f, kRows[0], test_device(), nullptr);
  for (uint32_t i = 0; i < kSteps; ++i) {
    copies.refused = 1;
    assert_int_equal(weir_session_step(session.get(), token_of(7)), WEIR_ERR_CANCELLED);
    copies.refused = UINT32_MAX;
    for (const Session* s : {&session, &other}) assert_ok(weir_session_step(s->get(), token_of(kPrompt + i)));
    weir_session_stats stats = WEIR_SESSION_STATS_INIT;
    assert_ok(weir_session_get_stats(session.get(), &stats));
    assert_int_equal(stats.n_tokens, kPrompt + i + 1);
  }
  const float *a = nullptr, *b = nullptr;
  uint32_t n = 0;
  assert_ok(weir_session_logits(session.get(), &a, &n));
  assert_ok(weir_session_logits(other.get(), &b, &n));
  float apart = 0.0f;
  for (uint32_t i = 0; i < n; ++i) apart = std::max(apart, std::fabs(a[i] - b[i]));
  if (!(apart <= 1e-3f)) fail_msg("logits are %g apart", static_cast<double>(apart));
  weir_session* const both[] = {session.get(), other.get()};
  const weir_token tokens[] = {token_of(8), token_of(8)};
  assert_int_equal(weir_step_many(both, tokens, 2), WEIR_ERR_UNSUPPORTED);
  close_gpu_fixture(&f);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(trace__is_that_of_the_processor),
      cmocka_unit_test(trace__a_refused_step_is_taken_back),
  };
  return cmocka_run_group_tests_name("device/trace", tests, nullptr, nullptr);
}
