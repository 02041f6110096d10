// device: attention that stops by itself, policy psa. After how many pages it stops is computed by hand for models
// whose keys are all equal, on the device and, with the same checks, on the processor. What it attends then is compared
// with quest, whose budget has the pages that a rule of quiet pages takes, and with the processor. A driver that
// computes on the processor gets shorter histories.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "api/handles.h"
#include "tests/device/device_test.h"
#include "tests/device/open_model.h"
#include "tests/device/random_model.h"

namespace {

using weir::kPageTokens;
using weir::test::distance;
using weir::test::logits_of;
using weir::test::OpenModel;
using weir::test::RandomModel;

using Options = std::vector<std::pair<const char*, std::string>>;

struct Close {
  void operator()(weir_session* session) const { weir_session_destroy(session); }
};
using Session = std::unique_ptr<weir_session, Close>;

weir_status try_open(const OpenModel& model, int32_t device, const char* policy, const Options& given, uint32_t budget,
                     uint32_t context, Session& out) {
  std::vector<weir_key_value> list = {{"skip_layers", "0"}};
  for (const auto& [key, value] : given) list.push_back({key, value.c_str()});
  weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
  options.device = device;
  options.policy = policy;
  options.policy_options = list.data();
  options.n_policy_options = static_cast<uint32_t>(list.size());
  options.budget_tokens = budget * kPageTokens;
  options.context_tokens = context;
  weir_session* session = nullptr;
  const weir_status status = weir_session_create(model.f.model, &options, &session);
  out.reset(session);
  return status;
}

Session open_session(const OpenModel& model, int32_t device, const char* policy, const Options& options,
                     uint32_t budget, uint32_t context) {
  Session session;
  assert_ok(try_open(model, device, policy, options, budget, context, session));
  return session;
}

std::vector<int32_t> devices() {
  std::vector<int32_t> list = {WEIR_DEVICE_CPU};
  if (why_no_gpu()[0] == '\0') list.push_back(test_device());
  return list;
}

// Random runs of equal tokens, some eight long, so that pages differ as those of texts do.
std::vector<weir_token> random_tokens(uint32_t n) {
  uint64_t state = 7;
  std::vector<weir_token> tokens(n);
  for (uint32_t i = 0; i < n; ++i) {
    const bool goes_on = i > 0 && weir::test::next_random(state) >> 61 != 0;
    tokens[i] = goes_on ? tokens[i - 1] : weir::test::random_token(state);
  }
  return tokens;
}

// A step; returns its pages, of all streams.
uint64_t step(const Session& session, weir_token token) {
  assert_ok(weir_session_step(session.get(), token));
  weir_session_stats stats = WEIR_SESSION_STATS_INIT;
  assert_ok(weir_session_get_stats(session.get(), &stats));
  return stats.pages_attended;
}

// A rule, and what it means when all tokens have the same logit.
struct Rule {
  double eps;      // without `quiet`
  uint32_t quiet;  // pages; 0: eps decides
  double share;
  uint32_t mb, n_sinks;
  bool bound = false;

  Options options() const {
    Options list = {{"mb", std::to_string(mb)}, {"sink_pages", std::to_string(n_sinks)}};
    if (quiet == 0) {
      list.push_back({"eps", std::to_string(eps)});
      if (bound) list.push_back({"bound", "true"});
    } else {
      list.push_back({"quiet", std::to_string(quiet)});
      list.push_back({"quiet_share", std::to_string(share)});
    }
    return list;
  }

  // Pages that a stream of `n` pages attends. The last page, with n_open tokens, comes first.
  uint32_t pages(uint32_t n, uint32_t n_open) const {
    const uint32_t n_forced = std::min(n, n_sinks + 1);
    uint32_t n_quiet = 0;
    for (uint32_t i = 1; i <= n; ++i) {
      // Forced pages come by row, so that the open one is the last of them.
      const double of_page = i == n_forced ? n_open : 16.0;
      const double seen = 16.0 * i - (i >= n_forced ? 16.0 - n_open : 0.0);
      // The bounds of equal keys are exact, and tell an open page's size.
      const double left = 16.0 * (n - i) - (i < n_forced ? 16.0 - n_open : 0.0);
      bool done = (i > n_forced || bound) && seen / (seen + (bound ? left : 16.0 * (n - i))) > eps;
      if (quiet > 0) {
        n_quiet = of_page <= share * seen ? n_quiet + 1 : 0;
        done = n_quiet >= quiet;
      }
      if (done) return std::min(n, (i + mb - 1) / mb * mb);
    }
    return n;
  }
};

void stop__counts_pages_alike(void**) {
  // Shares away from those that whole numbers of pages have.
  const Rule rules[] = {{0.0, 0, 0.0, 1, 0},          {0.3333, 0, 0.0, 1, 0},       {0.5017, 0, 0.0, 8, 0},
                        {0.9031, 0, 0.0, 3, 2},       {0.9907, 0, 0.0, 32, 0},      {0.5017, 0, 0.0, 7, 70},
                        {0.0, 1, 0.1234, 1, 0},       {0.0, 20, 0.0313, 8, 0},      {0.0, 130, 0.0101, 4, 3},
                        {0.0, 300, 0.0501, 5, 0},     {0.0, 17, 1.0, 1, 0},         {0.0, 3, 0.0, 8, 0},
                        {0.5017, 0, 0.0, 1, 0, true}, {0.9907, 0, 0.0, 8, 2, true}, {0.0031, 0, 0.0, 1, 1, true}};
  // CUDA has a kernel for heads of 64 and 128 elements and one for others.
  std::vector<RandomModel> models = {{"qwen2", 4, 2, 64, "f16", 1, 8192, true},
                                     {"qwen2", 7, 1, 128, "q8_0", 2, 8192, true},
                                     {"qwen2", 4, 2, 40, "f16", 1, 8192, true}};
  std::vector<const char*> aggs = {"max_raw", "max_z", "mean_raw", "sum_prob"};
  if (on_llvmpipe()) models = {{"qwen2", 4, 2, 32, "f16", 1, 8192, true}}, aggs.resize(1);
  for (const RandomModel& m : models) {
    const OpenModel model(m);
    const uint32_t n_streams = m.n_layers * m.n_kv_heads, n_prompt = on_llvmpipe() ? 600 : 5000;
    const std::vector<weir_token> tokens = random_tokens(n_prompt + 20);
    for (const int32_t device : devices()) {
      // The processor has one kernel for all shapes, and counts for the first of them.
      if (device == WEIR_DEVICE_CPU && &m != models.data()) continue;
      for (const Rule& rule : rules) {
        for (const char* agg : aggs) {
          if (device == WEIR_DEVICE_CPU && agg != aggs[0]) continue;  // policy/test_psa is about orders
          Options options = rule.options();
          options.push_back({"agg", agg});
          const bool sums = std::strcmp(agg, "sum_prob") == 0 && !rule.bound;
          options.push_back({"digest", sums ? "sketch" : "minmax"});
          const Session session = open_session(model, device, "psa", options, 0, 8192);
          // Short histories first: of less than a microbatch, of less than a round.
          uint32_t n = 0;
          for (const uint32_t to : {33u, 500u, n_prompt}) {
            assert_ok(weir_session_prefill(session.get(), tokens.data() + n, to - n, nullptr, nullptr));
            for (n = to; n < to + 4; ++n) {
              const uint64_t got = step(session, tokens[n]);
              const uint32_t n_pages = n / kPageTokens + 1, want = rule.pages(n_pages, n % kPageTokens + 1);
              if (got != uint64_t{want} * n_streams) {
                fail_msg(
                    "%s %s, eps %g%s, quiet %u, mb %u, %u sink pages, %u pages: %llu, not %u in each of %u "
                    "streams",
                    device == WEIR_DEVICE_CPU ? "processor" : "device", weir::test::name_of(m).c_str(), rule.eps,
                    rule.bound ? " by bounds" : "", rule.quiet, rule.mb, rule.n_sinks, n_pages,
                    static_cast<unsigned long long>(got), want, n_streams);
              }
            }
          }
        }
      }
    }
  }
}

// Short histories for sanitizers: three rounds, a stop in the first, and one by bounds, with the kernels for one launch
// per layer and with those for others.
void stop__several_rounds(void**) {
  const Rule rules[] = {
      {0.5, 0, 0.0, 8, 0}, {0.0, on_llvmpipe() ? 101u : 201u, 1.0, 3, 0}, {0.5017, 0, 0.0, 8, 0, true}};
  const uint32_t n_prompt = on_llvmpipe() ? 1803 : 3603;
  const std::vector<weir_token> tokens = random_tokens(3840);
  const std::vector<uint32_t> head_dims = on_llvmpipe() ? std::vector<uint32_t>{32} : std::vector<uint32_t>{64, 40};
  for (const uint32_t head_dim : head_dims) {
    const OpenModel model({"qwen2", 8, 2, head_dim, "f16", 1, 4096, true});
    for (const int32_t device : devices()) {
      for (const Rule& rule : rules) {
        const Session session = open_session(model, device, "psa", rule.options(), 0, 4096);
        assert_ok(weir_session_prefill(session.get(), tokens.data(), n_prompt, nullptr, nullptr));
        for (uint32_t n = n_prompt; n < n_prompt + steps_at_most(20); ++n)
          assert_int_equal(step(session, tokens[n]), 2 * rule.pages(n / kPageTokens + 1, n % kPageTokens + 1));
      }
    }
  }
}

const RandomModel kModels[] = {{"llama", 8, 2, 64, "f16", 1, 16384},
                               {"llama", 32, 8, 128, "q8_0", 1, 16384},
                               {"qwen3", 3, 1, 64, "f16", 2, 16384},
                               {"qwen2", 7, 1, 128, "q8_0", 1, 16384},
                               {"llama", 8, 1, 64, "f16", 1, 16384, false, false, true},
                               {"llama", 4, 1, 256, "f16", 1, 16384},
                               {"llama", 8, 2, 96, "f16", 1, 16384},
                               {"llama", 4, 1, 64, "f16", 1, 16384, false, false, false, 0.25f}};
constexpr uint32_t kInOneLaunch = 5;  // the first of these that CUDA computes in one launch per layer

// Every page is quiet with a share of 1: then the n best pages are attended, as quest does with a budget of n. They are
// summed in another order.
void attends_as_quest(const OpenModel& model, const RandomModel& m, uint32_t n, const char* digest, const char* agg) {
  const std::vector<weir_token> tokens = random_tokens(9000);
  Options options = {{"digest", digest}, {"agg", agg}};
  const Session quest = open_session(model, test_device(), "quest", options, n, 16384);
  options.insert(options.end(), {{"quiet", std::to_string(n)}, {"quiet_share", "1"}, {"mb", "1"}});
  const Session psa = open_session(model, test_device(), "psa", options, 0, 16384);
  for (const Session* s : {&quest, &psa}) {
    assert_ok(weir_session_prefill(s->get(), tokens.data(), 8000, nullptr, nullptr));
    for (const uint32_t at : {100u, 3000u, 7000u}) assert_ok(weir_session_pin(s->get(), at, at + 40));
  }
  for (uint32_t i = 8000; i < 8000 + steps_at_most(20); ++i) {
    assert_int_equal(step(quest, tokens[i]), step(psa, tokens[i]));
    const double apart = distance(logits_of(quest.get()), logits_of(psa.get()));
    if (!(apart <= 1e-3)) fail_msg("%s %u pages: logits are %g apart", weir::test::name_of(m).c_str(), n, apart);
  }
}

void stop__attends_as_quest(void**) {
  NEED_GPU();
  if (on_llvmpipe()) {
    print_message("skipped: histories of 8,000 tokens\n");
    skip();
  }
  for (const RandomModel& m : kModels) {
    const OpenModel model(m);
    if (&m >= kModels + kInOneLaunch) {
      attends_as_quest(model, m, 130, "minmax", "max_z");
      continue;
    }
    for (const uint32_t n : {16u, 61u, 64u, 130u, 200u}) {
      for (const char* agg : {"max_raw", "max_z", "mean_raw"}) attends_as_quest(model, m, n, "minmax", agg);
      attends_as_quest(model, m, n, "sketch", "sum_prob");
    }
  }
}

// A device's prompt is computed in another way, so that some pages change places in the order, and streams then stop a
// few pages earlier or later.
void attends_as_the_processor(const OpenModel& model, const RandomModel& m, const Options& options, uint32_t n_prompt,
                              bool must_stop = true) {
  const uint32_t budget = options.back().first == std::string("max_pages") ? 100 : 0, n_steps = steps_at_most(40);
  const std::vector<weir_token> tokens = random_tokens(n_prompt + n_steps);
  const Session cpu = open_session(model, WEIR_DEVICE_CPU, "psa", options, budget, 16384),
                gpu = open_session(model, test_device(), "psa", options, budget, 16384);
  for (const Session* s : {&cpu, &gpu})
    assert_ok(weir_session_prefill(s->get(), tokens.data(), n_prompt, nullptr, nullptr));
  double n_pages = 0.0, all = 0.0, off = 0.0;  // of all steps
  std::vector<double> apart;
  for (uint32_t i = n_prompt; i < n_prompt + n_steps; ++i) {
    const auto want = static_cast<double>(step(cpu, tokens[i])), got = static_cast<double>(step(gpu, tokens[i]));
    n_pages += m.n_layers * m.n_kv_heads * (i / kPageTokens + 1);
    all += want;
    off += std::fabs(want - got);
    apart.push_back(distance(logits_of(cpu.get()), logits_of(gpu.get())));
  }
  std::sort(apart.begin(), apart.end());
  const double middle = apart[n_steps / 2];
  std::string rule;
  for (const auto& [key, value] : options) rule += std::string(" ") + key + "=" + value;
  std::printf("%s%s: %.1f pages a step of %.1f, %.2f %% off, logits %.4f apart, at most %.4f\n",
              weir::test::name_of(m).c_str(), rule.c_str(), all / n_steps, n_pages / n_steps, 100.0 * off / all, middle,
              apart.back());
  if (!(off <= 0.05 * all) || !(middle <= 0.03)) fail_msg("too far");
  if (must_stop && !(all < n_pages)) fail_msg("it does not stop");
}

void stop__as_on_the_processor(void**) {
  NEED_GPU();
  const std::vector<Options> rules = {{{"eps", "0.1"}, {"bound", "true"}},
                                      {{"digest", "minmax"}, {"eps", "0.5"}, {"mb", "1"}},
                                      {{"digest", "minmax"}, {"eps", "0.9"}},
                                      {{"digest", "sphere_mean"}, {"eps", "0.9"}},
                                      {{"digest", "minmax"}, {"eps", "0.9"}, {"agg", "sum_prob"}},
                                      {{"digest", "minmax"}, {"eps", "0.98"}, {"mb", "4"}},
                                      {{"digest", "minmax"}, {"quiet", "16"}, {"quiet_share", "0.01"}},
                                      {{"digest", "minmax"}, {"eps", "0.9"}, {"max_pages", "70"}}};
  if (on_llvmpipe()) {
    const OpenModel model(kModels[0]);
    for (uint32_t i = 0; i < 2; ++i) attends_as_the_processor(model, kModels[0], rules[i], 600);
    return;
  }
  for (const RandomModel& m : kModels) {
    const OpenModel model(m);
    for (const Options& options : rules) attends_as_the_processor(model, m, options, 3000);
  }
}

// Pinned pages are attended, and the one that is being filled, even if they are more than the budget.
void stop__pins_beyond_the_budget(void**) {
  const RandomModel m = {"qwen2", 4, 2, 64, "f16", 2, 4096, true};
  const OpenModel model(m);
  const std::vector<weir_token> tokens = random_tokens(340);
  for (const int32_t device : devices()) {
    const Session session = open_session(model, device, "psa", {{"eps", "0.999"}, {"mb", "1"}}, 4, 4096);
    assert_ok(weir_session_prefill(session.get(), tokens.data(), 320, nullptr, nullptr));
    assert_ok(weir_session_pin(session.get(), 32, 192));
    // The first page, ten that are pinned, and the open one.
    for (uint32_t i = 320; i < 330; ++i) assert_int_equal(step(session, tokens[i]), 4 * 12);
  }
}

// Groups of more query heads than an MMA has rows, or a workgroup has registers for: some heads at a time.
void stop__large_groups(void**) {
  NEED_GPU();
  if (on_llvmpipe()) {
    const RandomModel m = {"llama", 16, 1, 64, "f16", 1, 8192};
    attends_as_the_processor(OpenModel(m), m, {{"digest", "minmax"}, {"eps", "0.1"}, {"mb", "1"}}, 600);
    return;
  }
  for (const RandomModel& m :
       {RandomModel{"llama", 16, 1, 64, "f16", 1, 16384}, RandomModel{"llama", 24, 2, 128, "f16", 1, 16384},
        RandomModel{"llama", 32, 1, 64, "f16", 1, 16384}}) {
    const OpenModel model(m);
    // A page that any of so many heads wants is attended: some of these attend all pages.
    for (const Options& options :
         {Options{{"digest", "minmax"}, {"eps", "0.9"}}, Options{{"digest", "sphere_mean"}, {"eps", "0.9"}},
          Options{{"eps", "0.1"}, {"bound", "true"}},
          Options{{"digest", "minmax"}, {"quiet", "16"}, {"quiet_share", "0.01"}}})
      attends_as_the_processor(model, m, options, 3000, false);
    attends_as_the_processor(model, m, {{"digest", "minmax"}, {"eps", "0.9"}, {"max_pages", "70"}}, 3000);
  }
}

// Groups of more query heads than one block or workgroup has.
void stop__larger_groups_are_refused(void**) {
  NEED_GPU();
  const OpenModel model({"llama", 40, 1, 64, "f16", 1, 16384});
  for (const Options& options : {Options{}, Options{{"bound", "true"}}, Options{{"quiet", "16"}}}) {
    Session session;
    assert_int_equal(try_open(model, test_device(), "psa", options, 0, 4096, session), WEIR_ERR_UNSUPPORTED);
    if (std::strstr(weir_last_error(), "groups of up to 32") == nullptr)
      fail_msg("not the group's: %s", weir_last_error());
    assert_null(session.get());
    assert_ok(try_open(model, WEIR_DEVICE_AUTO, "psa", options, 0, 4096, session));
    assert_int_equal(step(session, 5), 1);
    weir_memory_info memory = WEIR_MEMORY_INFO_INIT;
    assert_ok(weir_session_memory(session.get(), &memory));
    assert_int_equal(memory.device_bytes, 0);  // it is on the CPU
  }
}

}  // namespace

int main(void) {
  const CMUnitTest tests[] = {
      cmocka_unit_test(stop__counts_pages_alike),        cmocka_unit_test(stop__several_rounds),
      cmocka_unit_test(stop__attends_as_quest),          cmocka_unit_test(stop__as_on_the_processor),
      cmocka_unit_test(stop__pins_beyond_the_budget),    cmocka_unit_test(stop__large_groups),
      cmocka_unit_test(stop__larger_groups_are_refused),
  };
  return cmocka_run_group_tests_name("device/stop", tests, nullptr, nullptr);
}
