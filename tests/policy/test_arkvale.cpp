// policy: ArkVale (docs/algorithms.md, "ArkVale"). What its options give and refuse, which page leaves, and which pages
// a step wants, brings back and attends, beside a model of the rules in plain sets; a page that is lost is never
// attended; with everything brought back it is Quest.
#include <cstdio>
#include <set>

#include "tests/policy/policy_test.h"
#include "tests/policy/session_sim.h"

namespace {

using namespace weir;
using namespace weir::test;

constexpr uint32_t kNone = Policy::kNone;

void arkvale__defaults(void**) {
  const struct {
    uint32_t pages, recall_from, protect;
  } rows[] = {{2, 1, 0}, {3, 2, 0}, {7, 6, 0}, {8, 6, 1}, {15, 13, 1}, {16, 13, 2}, {32, 28, 2}, {64, 56, 2}};
  for (const auto& row : rows) {
    Made m("arkvale", row.pages * kPageTokens, 4096, {});
    assert_true(m.status.ok());
    const PolicyNeeds& needs = m.policy->needs();
    const StepRules rules = m.policy->step_rules();
    assert_int_equal(needs.recall_slots, row.pages);
    assert_int_equal(needs.pages_per_stream, 256);
    assert_true(needs.page_lists && needs.digest == DigestKind::kSketch);
    assert_true(rules.recalls && rules.selects && rules.victim == VictimRule::kCold);
    assert_true(rules.recall_pages == std::min(8u, row.pages) && !rules.attend_wanted);
    assert_int_equal(rules.select_budget, row.recall_from + 1);
    assert_int_equal(rules.protect.pages, row.protect);
    assert_int_equal(rules.select_from_layer, 0);
    const uint32_t sinks = row.pages == 2 ? 0 : 1;  // two pages are the open one and one that is chosen
    assert_int_equal(rules.sink_pages, sinks);
    assert_int_equal(rules.front_rows, sinks);
    assert_int_equal(m.policy->n_front_rows(), sinks);
    assert_true(rules.agg == AggMode::kSumProb);
    assert_int_equal(m.policy->needs().min_unpinned, row.recall_from - sinks + row.protect + 1);
  }
}

// What is wanted, what is protected and the open page fit into the pool. The error names all that is to be changed.
void arkvale__bounds(void**) {
  for (const char* wanted : {"29", "1"}) {
    Made fits("arkvale", 512, 4096, {{"recall_from", wanted}, {"protect_recent", wanted[0] == '1' ? "30" : "2"}});
    assert_true(fits.status.ok());
  }
  Made wants("arkvale", 512, 4096, {{"recall_from", "30"}});
  assert_int_equal(wants.status.code(), WEIR_ERR_BUDGET);
  assert_non_null(std::strstr(last_error_text(), "recall_from=30 and protect_recent=2"));
  assert_non_null(std::strstr(last_error_text(), "at least 528 tokens, not 512"));
  Made protects("arkvale", 512, 4096, {{"protect_recent", "4"}});
  assert_true(protects.status.ok());
  assert_int_equal(protects.policy->step_rules().select_budget, 27 + 1);
  Made too_many("arkvale", 512, 4096, {{"protect_recent", "31"}});
  assert_int_equal(too_many.status.code(), WEIR_ERR_BUDGET);
  assert_non_null(std::strstr(last_error_text(), "recall_from=1 and protect_recent=31"));
  Made most("arkvale", 512, 4096, {{"recall_from", "1048576"}, {"protect_recent", "1048576"}});
  assert_int_equal(most.status.code(), WEIR_ERR_BUDGET);
  assert_non_null(std::strstr(last_error_text(), "33554448 tokens"));
}

// A step wants more than the first pages. The error names the budget that is enough: it is, and no smaller one.
void arkvale__bounds_of_first_pages(void**) {
  for (const uint32_t slots : {2u, 3u, 4u, 8u, 15u, 16u, 40u}) {
    for (uint32_t sinks = 1; sinks < 80; ++sinks) {
      char number[16], least[64];
      std::snprintf(number, sizeof(number), "%u", sinks);
      Made m("arkvale", slots * kPageTokens, 1u << 16, {{"sink_pages", number}});
      if (m.status.ok()) {
        assert_true(m.policy->step_rules().front_rows == sinks && m.policy->step_rules().select_budget > sinks + 1);
        continue;
      }
      assert_int_equal(m.status.code(), WEIR_ERR_BUDGET);
      uint32_t enough = slots;
      while (!Made("arkvale", enough * kPageTokens, 1u << 16, {{"sink_pages", number}}).status.ok()) ++enough;
      Made again("arkvale", slots * kPageTokens, 1u << 16, {{"sink_pages", number}});
      std::snprintf(least, sizeof(least), "sink_pages=%u needs a budget of at least %u tokens, not %u", sinks,
                    enough * kPageTokens, slots * kPageTokens);
      assert_non_null(std::strstr(last_error_text(), least));
    }
  }
  // By default there are none where the options leave no room for one.
  Made one("arkvale", 512, 4096, {{"recall_from", "1"}});
  assert_true(one.status.ok() && one.policy->n_front_rows() == 0);
  Made two("arkvale", 512, 4096, {{"recall_from", "2"}});
  assert_true(two.status.ok() && two.policy->n_front_rows() == 1);
  Made more("arkvale", 512, 4096, {{"recall_from", "2"}, {"sink_pages", "2"}});
  assert_int_equal(more.status.code(), WEIR_ERR_INVALID_ARG);
  assert_non_null(std::strstr(last_error_text(), "sink_pages=2 contradicts recall_from=2"));
  Made whole("arkvale", 512, 512, {{"recall_from", "2"}, {"sink_pages", "40"}});  // nothing ever leaves
  assert_true(whole.status.ok() && whole.policy->step_rules().front_rows == 0);
}

// A pool for the whole context recalls nothing. It selects only if it attends less than there is.
void arkvale__pools_that_hold_all(void**) {
  for (uint32_t budget : {0u, 512u, 4096u}) {
    Made all("arkvale", budget, 512, {});
    const PolicyNeeds& needs = all.policy->needs();
    assert_true(needs.recall_slots == 0 && !needs.page_lists && needs.digest == DigestKind::kNone);
    assert_int_equal(needs.pages_per_stream, 32);
    const StepRules rules = all.policy->step_rules();
    assert_true(!rules.recalls && !rules.selects && rules.victim == VictimRule::kNever);
    assert_int_equal(all.policy->needs().min_unpinned, 2);
    Made top("arkvale", budget, 512, {{"attend", "top"}});
    assert_true(top.policy->needs().recall_slots == 0 && top.policy->needs().page_lists);
    assert_true(top.policy->step_rules().selects && !top.policy->step_rules().recalls);
    assert_int_equal(top.policy->step_rules().select_budget, 29);
    for (const char* wanted : {"30", "31", "100"}) {
      Made m("arkvale", budget, 512, {{"attend", "top"}, {"recall_from", wanted}});
      assert_int_equal(m.policy->needs().page_lists, std::strcmp(wanted, "30") == 0);
    }
  }
  Made almost("arkvale", 496, 512, {});
  assert_int_equal(almost.policy->needs().recall_slots, 31);
}

// The least (stamp, score, row) among the resident pages that are neither first nor pinned nor protected.
void arkvale__victims(void**) {
  Made m("arkvale", 128, 4096, {{"recall_from", "5"}, {"protect_recent", "2"}, {"sink_pages", "0"}});
  Table t(10);
  t.copies.assign(10, 0);
  for (uint32_t row = 0; row < 9; ++row) {
    t.append(row * kPageTokens, 20);
    t.slots[row] = row;
    t.score[row] = 1.0f;
  }
  t.len[8] = 3;
  const auto victim = [&] { return m.policy->victim(t.view(), room(131, true)); };
  assert_int_equal(m.policy->victim(t.view(), room(131, false)), kNone);
  assert_int_equal(victim(), 0);  // of equals the oldest
  t.score[3] = 0.5f;
  assert_int_equal(victim(), 3);
  t.score[4] = NAN;  // counts as -inf
  assert_int_equal(victim(), 4);
  t.stamp[5] = 19;
  assert_int_equal(victim(), 5);
  t.flags[5] = kPageKept;
  assert_int_equal(victim(), 4);
  t.slots[4] = kNoSlot;  // cold already
  assert_int_equal(victim(), 3);
  for (uint32_t row : {6u, 7u, 8u}) t.stamp[row] = 1;  // the newest two are protected, and the open page
  assert_int_equal(victim(), 3);
  t.n = 8;
  assert_int_equal(victim(), 3);
  t.n = 9, t.flags[3] = kPageKept;
  assert_int_equal(victim(), 0);
  Made sinks("arkvale", 128, 4096, {{"recall_from", "5"}, {"protect_recent", "2"}, {"sink_pages", "2"}});
  assert_int_equal(sinks.policy->victim(t.view(), room(131, true)), 2);
  t.slots[2] = kNoSlot;
  assert_int_equal(sinks.policy->victim(t.view(), room(131, true)), 6);  // all others stay: a protected page
  t.n = 1;
  assert_int_equal(sinks.policy->victim(t.view(), room(131, true)), kNone);
}

// While a prompt takes pages, the protected ones leave too if there is no other.
void arkvale__prompts_take_protected_pages_last(void**) {
  Made m("arkvale", 128, 4096, {{"recall_from", "5"}, {"protect_recent", "2"}});
  Table t(10);
  t.copies.assign(10, 0);
  for (uint32_t row = 0; row < 8; ++row) {
    t.append(row * kPageTokens, 20 - row, row < 4 ? uint32_t{kPageKept} : 0u);
    t.slots[row] = row < 5 ? row : row - 1;
  }
  const auto victim = [&] { return m.policy->victim(t.view(), {Phase::kPrompt, 128, 3, true, 0}); };
  assert_int_equal(victim(), 4);
  t.slots[4] = kNoSlot;
  assert_int_equal(victim(), 6);
  t.slots[6] = kNoSlot;
  assert_int_equal(victim(), 5);
  t.slots[5] = kNoSlot;
  assert_int_equal(victim(), kNone);  // the last page stays
}

// ---------------------------------------------------------------------------------------------------------------------

// Keys that are the same in a whole page, a direction of its own for each: the estimate of a page is then the query's
// value in that direction, without error.
Inputs planted(const SimShape& shape, uint32_t n_tokens) {
  Inputs inputs(shape, n_tokens, 91);
  for (uint32_t layer = 0; layer < shape.n_layers; ++layer) {
    for (uint32_t pos = 0; pos < n_tokens; ++pos) {
      for (uint32_t i = 0; i < shape.n_kv_heads * shape.head_dim; ++i)
        inputs.k(layer, pos)[i] = i % shape.head_dim == pos / kPageTokens ? 1.0f : 0.0f;
    }
  }
  return inputs;
}

struct Rules {
  uint32_t slots, recall_from, recall_pages, protect;
  bool top;
  uint32_t sinks = 0;
};

// One stream by the rules, without tables.
struct Model {
  explicit Model(const Rules& r) : r(r) {}
  uint32_t n_pages() const { return static_cast<uint32_t>(stamp.size()); }
  bool stays(uint32_t page) const { return page < r.sinks || pinned.count(page) != 0; }
  uint32_t stalest(uint32_t now) const {
    uint32_t best = kNone;
    for (uint32_t page : resident) {
      if (page + 1 + r.protect >= n_pages() || stays(page) || stamp[page] == now) continue;
      if (best == kNone || std::pair(stamp[page], score[page]) < std::pair(stamp[best], score[best])) best = page;
    }
    return best;
  }
  void open(uint32_t now) {
    if (resident.size() == r.slots) resident.erase(stalest(kNone));
    resident.insert(n_pages());
    stamp.push_back(now);
    score.push_back(0.0f);
  }
  // `scores` [n_pages] of the step; returns the pages to attend.
  std::vector<uint32_t> step(const std::vector<float>& scores, uint32_t now) {
    score = scores;
    std::vector<uint32_t> wanted, others;
    for (uint32_t page = 0; page + 1 < n_pages(); ++page) (stays(page) ? wanted : others).push_back(page);
    const auto better = [&](uint32_t a, uint32_t b) { return score[a] > score[b]; };
    std::sort(others.begin(), others.end(), better);
    for (uint32_t i = 0; i < others.size() && wanted.size() < r.recall_from; ++i) wanted.push_back(others[i]);
    wanted.push_back(n_pages() - 1);
    for (uint32_t page : wanted) stamp[page] = now;
    std::sort(wanted.begin(), wanted.end(), better);
    uint32_t n_back = 0;
    for (uint32_t page : wanted) {
      if (resident.count(page) != 0 || (r.recall_pages != 0 && n_back == r.recall_pages)) continue;
      if (resident.size() == r.slots) resident.erase(stalest(now));
      resident.insert(page);
      ++n_back;
    }
    max_back = std::max(max_back, n_back);
    n_recalled += n_back;
    std::set<uint32_t> attended;
    for (uint32_t page : r.top ? wanted : std::vector<uint32_t>(resident.begin(), resident.end())) {
      if (resident.count(page) != 0) attended.insert(page);
    }
    return {attended.begin(), attended.end()};
  }

  Rules r;
  std::set<uint32_t> resident, pinned;
  std::vector<uint32_t> stamp;
  std::vector<float> score;
  uint64_t n_recalled = 0;
  uint32_t max_back = 0;
};

PolicySpec spec_of(const Rules& r, const char* (&texts)[5]) {
  static char storage[4][16];
  const uint32_t numbers[4] = {r.recall_from, r.recall_pages, r.protect, r.sinks};
  for (int i = 0; i < 4; ++i) {
    std::snprintf(storage[i], sizeof(storage[i]), "%u", numbers[i]);
    texts[i] = storage[i];
  }
  texts[4] = r.top ? "top" : "resident";
  return {"arkvale",
          r.slots * kPageTokens,
          1024,
          0,
          {{"digest", "minmax"},
           {"agg", "max_raw"},
           {"recall_from", texts[0]},
           {"recall_pages", texts[1]},
           {"protect_recent", texts[2]},
           {"sink_pages", texts[3]},
           {"attend", texts[4]}}};
}

// Residency, stamps and lists of every step are those of the model.
void follow(const Rules& r, bool pins) {
  const SimShape shape = {1, 2, 2, 64, 512, false};
  Inputs inputs = planted(shape, 700);
  const char* texts[5];
  Sim sim(cpu_backend(), inputs, spec_of(r, texts));
  sim.prefill(r.slots * kPageTokens);
  std::vector<Model> models(2, Model(r));
  for (Model& m : models) {
    for (uint32_t page = 0; page < r.slots; ++page) m.open(sim.n_tokens());
  }
  sim.on_layer = [&](uint32_t) {
    const uint32_t now = sim.n_tokens() + 1;
    for (uint32_t s = 0; s < 2; ++s) {
      Model& m = models[s];
      if (now % kPageTokens == 1) m.open(now);
      std::vector<float> scores(m.n_pages());
      for (uint32_t page = 0; page < m.n_pages(); ++page) {
        const float* q = inputs.q(0, now - 1) + size_t{2} * s * 64;
        scores[page] = std::max(q[page], q[64 + page]);
      }
      const std::vector<uint32_t> want = m.step(scores, now);
      const StreamView v = sim.kv.stream(s);
      assert_int_equal(v.n_pages, m.n_pages());
      for (uint32_t row = 0; row < v.n_pages; ++row) {
        if ((v.slots[row] != kNoSlot) != (m.resident.count(row) != 0))
          fail_msg("%u tokens: page %u of stream %u is%s resident", now, row, s, v.slots[row] != kNoSlot ? "" : " not");
        assert_int_equal(v.stamp[row], m.stamp[row]);
      }
      assert_true(sim.attended(0, 2 * s) == want);
    }
  };
  sim.steps(40);
  if (pins) {
    for (uint32_t page : {1u, 5u}) {  // one of them cold by now, or both
      sim.pin(page * kPageTokens, page * kPageTokens + 1);
      for (Model& m : models) m.pinned.insert(page);
    }
  }
  sim.steps(300);
  uint64_t n_recalled = 0;
  for (const Model& m : models) {
    n_recalled += m.n_recalled;
    assert_true(m.max_back >= (r.recall_pages == 1 ? 1 : 2));
  }
  assert_int_equal(sim.cold.pages_recalled(), n_recalled);
  assert_true(n_recalled > 300);
  for (float x : sim.out[0]) assert_false(std::isnan(x));
}

void arkvale__steps_follow_the_rules(void**) {
  follow({8, 5, 1, 1, false}, false);
  follow({8, 5, 2, 2, false}, false);
  follow({8, 5, 0, 2, false}, false);
  follow({8, 7, 0, 0, true}, false);  // nothing but what is wanted
  follow({8, 4, 2, 1, true}, false);
  follow({12, 4, 3, 2, false}, true);
  follow({12, 4, 0, 1, true}, true);
  follow({8, 5, 2, 1, false, 1}, false);
  follow({8, 5, 0, 1, true, 3}, false);
  follow({12, 5, 3, 2, false, 1}, true);  // one of the pins is the first page behind it
}

// The smallest case by hand: four pages, the first of which left when the fifth was opened.
void arkvale__one_step_by_hand(void**) {
  const SimShape shape = {1, 1, 1, 64, 512, false};
  Inputs inputs = planted(shape, 80);
  const float first[] = {0.9f, 0.1f, 0.3f, 0.2f, 0.0f}, second[] = {0.1f, 0.2f, 0.8f, 0.7f, 0.0f};
  for (uint32_t i = 0; i < 64; ++i) {
    inputs.q(0, 64)[i] = i < 5 ? first[i] : 0.0f;
    inputs.q(0, 65)[i] = i < 5 ? second[i] : 0.0f;
  }
  const char* texts[5];
  Sim sim(cpu_backend(), inputs, spec_of({4, 2, 1, 1, false}, texts));
  std::vector<uint32_t> left;
  sim.on_evict = [&](uint32_t, const StreamView&, uint32_t row, const RoomArgs&) { left.push_back(row); };
  sim.prefill(64);
  sim.step();
  assert_true(left == std::vector<uint32_t>{0});
  // Wanted: pages 0 and 2. Page 0 comes back over page 1, as page 3 is protected.
  assert_true(sim.pages(0) == (std::vector<uint32_t>{0, 32, 48, 64}));
  assert_true(sim.attended(0, 0) == (std::vector<uint32_t>{0, 2, 3, 4}));
  const StreamView v = sim.kv.stream(0);
  assert_true(v.stamp[0] == 65 && v.stamp[1] == 64 && v.stamp[2] == 65 && v.stamp[3] == 64);
  // Wanted: 2 and 3, which are there.
  sim.step();
  assert_int_equal(sim.cold.pages_recalled(), 1);
  assert_true(sim.pages(0) == (std::vector<uint32_t>{0, 32, 48, 64}));
  assert_int_equal(left.size(), 1);
}

// The same with the first page always attended: it stays when the fifth is opened, and page 1 leaves. The second step
// wants it and page 2, its best.
void arkvale__one_step_by_hand_with_the_first_page(void**) {
  const SimShape shape = {1, 1, 1, 64, 512, false};
  Inputs inputs = planted(shape, 80);
  const float first[] = {0.1f, 0.2f, 0.9f, 0.3f, 0.0f}, second[] = {0.1f, 0.8f, 0.2f, 0.7f, 0.0f};
  for (uint32_t i = 0; i < 64; ++i) {
    inputs.q(0, 64)[i] = i < 5 ? first[i] : 0.0f;
    inputs.q(0, 65)[i] = i < 5 ? second[i] : 0.0f;
  }
  const char* texts[5];
  Sim sim(cpu_backend(), inputs, spec_of({4, 2, 1, 1, false, 1}, texts));
  std::vector<uint32_t> left;
  sim.on_evict = [&](uint32_t, const StreamView&, uint32_t row, const RoomArgs&) { left.push_back(row); };
  sim.prefill(64);
  sim.step();
  assert_true(left == std::vector<uint32_t>{1});
  assert_true(sim.pages(0) == (std::vector<uint32_t>{0, 32, 48, 64}));
  assert_int_equal(sim.cold.pages_recalled(), 0);
  // Wanted: the first page and page 1, which comes back over page 2: page 3 is protected, and the first page is older.
  sim.step();
  assert_int_equal(sim.cold.pages_recalled(), 1);
  assert_true(sim.pages(0) == (std::vector<uint32_t>{0, 16, 48, 64}));
  const StreamView v = sim.kv.stream(0);
  assert_true(v.stamp[0] == 66 && v.stamp[1] == 66 && v.stamp[2] == 65 && v.stamp[3] == 64);
}

// The first pages never leave, whatever a conversation does: long prompts, steps, rewinding into the first page, a step
// as the very first thing. Every pool of three pages and more.
void arkvale__first_pages_never_leave(void**) {
  const SimShape shape = {2, 2, 2, 64, 64, true};
  const Inputs inputs(shape, 1000, 97);
  for (const uint32_t slots : {3u, 4u, 9u, 20u}) {
    Sim sim(cpu_backend(), inputs, {"arkvale", slots * kPageTokens, 1024, 0, {}});
    sim.on_evict = [&](uint32_t, const StreamView& s, uint32_t row, const RoomArgs&) {
      assert_true(s.first_pos[row] >= kPageTokens);
    };
    sim.on_layer = [&](uint32_t layer) {
      for (uint32_t head : {0u, 2u}) {
        const StreamView v = sim.kv.stream(layer * 2 + head / 2);
        assert_true(v.slots[0] != kNoSlot && v.first_pos[0] == 0);
        assert_int_equal(sim.attended(layer, head).front(), 0);
      }
    };
    sim.steps(60);
    sim.prefill(200);
    sim.steps(300);
    assert_true(sim.cold.pages_recalled() > 0);
  }
}

// ---------------------------------------------------------------------------------------------------------------------

// All wanted pages brought back, and attended alone: Quest with a budget of that many pages and the open one, in memory
// that does not grow.
void arkvale__is_quest_when_all_comes_back(void**) {
  const SimShape shapes[] = {{2, 2, 3, 64, 48, true}, {2, 1, 4, 128, 512, true}};
  for (const Backend* backend : kBackends) {
    for (const SimShape& shape : shapes) {
      if (backend == &reference_backend() && shape.head_dim != 64) continue;
      const Inputs inputs(shape, 700, 92);
      for (const char* agg : {"max_raw", "sum_prob"}) {
        const char* sinks = std::strcmp(agg, "sum_prob") == 0 ? "1" : "0";
        Sim quest(*backend, inputs,
                  {"quest",
                   112,
                   1024,
                   0,
                   {{"skip_layers", "0"}, {"sink_pages", sinks}, {"digest", "cuboid_mean"}, {"agg", agg}}});
        for (uint32_t slots : {7u, 12u, 64u}) {
          if (backend == &reference_backend() && slots != 12) continue;
          Sim sim(*backend, inputs,
                  {"arkvale",
                   slots * kPageTokens,
                   1024,
                   0,
                   {{"recall_from", "6"},
                    {"recall_pages", "0"},
                    {"attend", "top"},
                    {"protect_recent", "0"},
                    {"sink_pages", sinks},
                    {"digest", "cuboid_mean"},
                    {"agg", agg}}});
          for (Sim* s : {&quest, &sim}) {
            if (s == &quest && quest.n_tokens() != 0) continue;
            s->prefill(70);
            s->steps(90);
            s->prefill(200);
            s->steps(50);
          }
          assert_same_outputs(sim, quest, "arkvale");
          assert_int_equal(sim.cold.pages_recalled() > 0, slots != 64);
        }
      }
    }
  }
}

// A store for some of the pages: those that are lost are neither attended nor listed, and nothing read from them.
void arkvale__lost_pages_are_not_attended(void**) {
  const SimShape shape = {2, 2, 2, 64, 64, true};
  const Inputs inputs(shape, 900, 93);
  for (const char* attend : {"resident", "top"}) {
    for (uint32_t spill_pages : {4u, 60u}) {
      Sim sim(cpu_backend(), inputs,
              {"arkvale", 160, 1024, 0, {{"attend", attend}, {"recall_from", "7"}}, spill_pages});
      sim.on_layer = [&](uint32_t layer) {
        for (uint32_t head : {0u, 2u}) {
          const StreamView v = sim.kv.stream(layer * 2 + head / 2);
          const std::vector<uint32_t> list = sim.attended(layer, head);
          assert_true(!list.empty() && list.back() + 1 == v.n_pages);
          for (uint32_t row : list) assert_true(v.slots[row] != kNoSlot && !v.is_lost(row));
        }
      };
      sim.prefill(120);
      sim.steps(300);
      sim.prefill(150);  // a prompt that reads past lost pages
      sim.steps(150);
      assert_true(sim.kv.pages_lost() > 20);
      for (const auto& layer : sim.out) {
        for (float x : layer) assert_false(std::isnan(x));
      }
    }
  }
}

// Pins leave what a step needs. A prompt after them takes the room that is left, that of protected pages too.
void arkvale__pins(void**) {
  const SimShape shape = {2, 2, 2, 64, 512, true};
  const Inputs inputs(shape, 600, 94);
  Sim sim(cpu_backend(), inputs, {"arkvale", 320, 1024, 0, {{"recall_from", "1"}, {"protect_recent", "2"}}});
  sim.prefill(320);
  assert_true(sim.policy().admit_pin(sim.kv, 0, 16 * kPageTokens).ok());
  assert_int_equal(sim.policy().admit_pin(sim.kv, 0, 16 * kPageTokens + 1).code(), WEIR_ERR_BUDGET);
  assert_non_null(std::strstr(last_error_text(), "would leave 3 of 20 pages that can make room, 4 are needed"));
  sim.pin(0, 16 * kPageTokens);
  sim.prefill(100);
  sim.steps(60);
  for (uint32_t s = 0; s < 4; ++s) {
    for (uint32_t page = 0; page < 16; ++page) assert_true(sim.row_of(s, page * kPageTokens) == page);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(arkvale__defaults),
      cmocka_unit_test(arkvale__bounds),
      cmocka_unit_test(arkvale__bounds_of_first_pages),
      cmocka_unit_test(arkvale__pools_that_hold_all),
      cmocka_unit_test(arkvale__victims),
      cmocka_unit_test(arkvale__prompts_take_protected_pages_last),
      cmocka_unit_test(arkvale__steps_follow_the_rules),
      cmocka_unit_test(arkvale__one_step_by_hand),
      cmocka_unit_test(arkvale__one_step_by_hand_with_the_first_page),
      cmocka_unit_test(arkvale__first_pages_never_leave),
      cmocka_unit_test(arkvale__is_quest_when_all_comes_back),
      cmocka_unit_test(arkvale__lost_pages_are_not_attended),
      cmocka_unit_test(arkvale__pins),
  };
  return cmocka_run_group_tests_name("policy_arkvale", tests, nullptr, nullptr);
}
