// policy: recall=on in raas and hybrid (docs/algorithms.md, "Recall by other policies"). What the option gives and
// refuses; which pages a step wants, brings back, lets go and stamps, beside a model of the rules in plain sets; the
// slots of prompts and answers; prompts beyond the pool.
#include <cstdio>
#include <set>

#include "tests/policy/policy_test.h"
#include "tests/policy/session_sim.h"

namespace {

using namespace weir;
using namespace weir::test;

constexpr uint32_t kNone = Policy::kNone;

void recall_stamps__defaults(void**) {
  for (const char* name : {"raas", "hybrid"}) {
    Made m(name, 512, 4096, {{"recall", "on"}});
    assert_true(m.status.ok());
    const PolicyNeeds& needs = m.policy->needs();
    const StepRules rules = m.policy->step_rules();
    assert_int_equal(needs.recall_slots, 32);
    assert_int_equal(needs.pages_per_stream, 256);
    assert_true(needs.may_recall && !rules.stamps_wanted);
    assert_true(needs.page_lists && needs.page_mass && needs.digest == DigestKind::kSketch);
    assert_false(needs.prompt_policy || needs.prompt_pages != 0);
    assert_true(rules.recalls && rules.selects && rules.victim == VictimRule::kCold);
    assert_true(rules.observe == StepRules::Observe::kStampMass && rules.agg == AggMode::kSumProb);
    assert_int_equal(rules.select_budget, 29);
    assert_true(rules.protect.pages == 2 && rules.protect.share == 0.0f);
    assert_int_equal(rules.select_from_layer, 0);
    assert_true(rules.sink_pages == 1 && rules.front_rows == 1 && m.policy->n_front_rows() == 1);
    assert_int_equal(m.policy->needs().min_unpinned, 30);
    assert_int_equal(m.policy->prompt_flags(), kPagePrompt);
    assert_true(m.policy->can_take_back_prompt());
  }
  Made ark("arkvale", 512, 4096, {});
  assert_true(ark.policy->step_rules().stamps_wanted);
  Made share("raas", 512, 4096, {{"recall", "on"}, {"protect_share", "0.25"}});
  assert_int_equal(share.policy->step_rules().protect.pages, 8);
  assert_int_equal(share.policy->step_rules().select_budget, 24);
  Made pages("raas", 512, 4096, {{"recall", "on"}, {"protect_recent", "3"}});
  assert_int_equal(pages.policy->step_rules().protect.pages, 3);
}

// Off is as if the option did not exist.
void recall_stamps__off(void**) {
  for (const char* name : {"raas", "hybrid"}) {
    Made plain(name, 512, 4096, {}), off(name, 512, 4096, {{"recall", "off"}});
    assert_true(off.status.ok());
    const PolicyNeeds &a = plain.policy->needs(), &b = off.policy->needs();
    assert_true(a.pages_per_stream == b.pages_per_stream && b.recall_slots == 0 && !b.may_recall);
    assert_true(a.page_lists == b.page_lists && a.page_mass == b.page_mass && a.digest == b.digest);
    assert_false(off.policy->step_rules().recalls);
  }
}

// A pool for the whole context recalls, observes and lets go nothing.
void recall_stamps__pools_that_hold_all(void**) {
  for (const char* name : {"raas", "hybrid"}) {
    Made all(name, 512, 512, {{"recall", "on"}});
    const PolicyNeeds& needs = all.policy->needs();
    assert_true(needs.recall_slots == 0 && needs.may_recall && !needs.page_lists && !needs.page_mass);
    const StepRules rules = all.policy->step_rules();
    assert_true(!rules.recalls && !rules.selects && rules.observe == StepRules::Observe::kNone);
    assert_int_equal(all.policy->needs().min_unpinned, 2);
    Made top(name, 512, 512, {{"recall", "on"}, {"attend", "top"}});
    assert_true(top.policy->needs().page_lists && top.policy->needs().recall_slots == 0);
  }
}

// ---------------------------------------------------------------------------------------------------------------------

// Keys that are the same in a whole page, a direction of its own for each: the estimate of a page is then the query's
// value in that direction, without error. `gain` makes attention fall on few pages.
Inputs planted(const SimShape& shape, uint32_t n_tokens, float gain) {
  Inputs inputs(shape, n_tokens, 95);
  for (uint32_t layer = 0; layer < shape.n_layers; ++layer) {
    for (uint32_t pos = 0; pos < n_tokens; ++pos) {
      for (uint32_t i = 0; i < shape.n_kv_heads * shape.head_dim; ++i)
        inputs.k(layer, pos)[i] = i % shape.head_dim == pos / kPageTokens ? gain : 0.0f;
    }
  }
  return inputs;
}

struct Rules {
  const char* policy;
  uint32_t slots, recall_from, recall_pages, protect;
  bool top;
  uint32_t prompt_slots;  // 0: no parts
  uint32_t sinks = 0;
};

// One stream by the rules, without tables.
struct Model {
  Model(const Rules& rules, uint32_t n_prompt_pages) : r(rules), n_prompt(n_prompt_pages) {}
  uint32_t n_pages() const { return static_cast<uint32_t>(stamp.size()); }
  bool is_prompt(uint32_t page) const { return page < n_prompt; }
  bool stays(uint32_t page) const { return page < r.sinks || pinned.count(page) != 0; }
  uint32_t sealed(bool prompt) const {
    uint32_t n = 0;
    for (uint32_t page = 0; page + 1 < n_pages(); ++page) n += is_prompt(page) == prompt ? 1u : 0u;
    return n;
  }

  // The page that leaves for one that comes.
  uint32_t leaves(const std::set<uint32_t>& wanted, bool prompt_comes) const {
    uint32_t n_resident = prompt_comes ? 1 : 0;
    for (uint32_t page : resident) n_resident += is_prompt(page) && page + 1 < n_pages() ? 1u : 0u;
    const uint32_t part = std::min(r.prompt_slots, sealed(true) + (prompt_comes ? 1u : 0u));
    const bool from_prompt = n_resident > part;
    uint32_t best = kNone, best_of_part = kNone;
    const auto better = [&](uint32_t page, uint32_t than) {
      return than == kNone || std::pair(stamp[page], score[page]) < std::pair(stamp[than], score[than]);
    };
    for (uint32_t page : resident) {
      if (page + 1 + r.protect >= n_pages() || stays(page) || wanted.count(page) != 0) continue;
      if (better(page, best)) best = page;
      if (is_prompt(page) == from_prompt && better(page, best_of_part)) best_of_part = page;
    }
    return r.prompt_slots != 0 && best_of_part != kNone ? best_of_part : best;
  }
  void open(uint32_t now) {
    if (resident.size() == r.slots) resident.erase(leaves({}, false));
    resident.insert(n_pages());
    stamp.push_back(now);
    score.push_back(0.0f);
  }
  void want(std::set<uint32_t>& wanted, uint32_t n, bool prompt, bool both) const {
    std::vector<uint32_t> pages;
    for (uint32_t page = 0; page + 1 < n_pages(); ++page) {
      if (!both && is_prompt(page) != prompt) continue;
      if (!stays(page)) pages.push_back(page);
      if (stays(page)) wanted.insert(page), n -= std::min(n, 1u);
    }
    std::stable_sort(pages.begin(), pages.end(), [&](uint32_t a, uint32_t b) { return score[a] > score[b]; });
    for (uint32_t i = 0; i < pages.size() && i < n; ++i) wanted.insert(pages[i]);
  }
  // `estimates` [n_pages] of the step; returns the pages to attend.
  std::vector<uint32_t> step(const std::vector<float>& estimates) {
    score = estimates;
    std::set<uint32_t> wanted;
    if (r.prompt_slots == 0) {
      want(wanted, r.recall_from, false, true);
    } else {
      const uint32_t answer_slots = r.slots - std::min(r.prompt_slots, sealed(true));
      const uint32_t n_answer = std::min({sealed(false), r.recall_from, answer_slots - r.protect - 1});
      want(wanted, n_answer, false, false);
      want(wanted, std::min(sealed(true), r.recall_from - n_answer), true, false);
    }
    wanted.insert(n_pages() - 1);
    std::vector<uint32_t> best(wanted.begin(), wanted.end());
    std::stable_sort(best.begin(), best.end(), [&](uint32_t a, uint32_t b) {
      return std::pair(stays(a), score[a]) > std::pair(stays(b), score[b]);
    });
    uint32_t n_back = 0;
    for (uint32_t page : best) {
      if (resident.count(page) != 0 || (r.recall_pages != 0 && n_back == r.recall_pages)) continue;
      if (resident.size() == r.slots) resident.erase(leaves(wanted, is_prompt(page)));
      resident.insert(page);
      ++n_back;
    }
    n_recalled += n_back;
    std::vector<uint32_t> attended;
    for (uint32_t page : r.top ? wanted : resident) {
      if (resident.count(page) != 0) attended.push_back(page);
    }
    return attended;
  }
  // `mass` of the attended pages, the largest of the group's heads.
  void observe(const std::vector<uint32_t>& attended, const std::vector<float>& mass, float alpha, uint32_t now) {
    score.assign(n_pages(), 0.0f);
    for (size_t i = 0; i < attended.size(); ++i) {
      score[attended[i]] = mass[i];
      if (mass[i] > alpha) stamp[attended[i]] = now, ++n_stamped;
    }
    stamp.back() = now;
  }

  Rules r;
  uint32_t n_prompt;
  std::set<uint32_t> resident, pinned;
  std::vector<uint32_t> stamp;
  std::vector<float> score;
  uint64_t n_recalled = 0, n_stamped = 0;
};

struct Texts {
  char text[5][16];
};

PolicySpec spec_of(const Rules& r, Texts& t) {
  const double numbers[] = {double(r.recall_from), double(r.recall_pages), double(r.protect),
                            (r.prompt_slots + 0.5) / r.slots, double(r.sinks)};
  for (int i = 0; i < 5; ++i) std::snprintf(t.text[i], sizeof(t.text[i]), "%g", numbers[i]);
  PolicySpec spec = {r.policy,
                     r.slots * kPageTokens,
                     1024,
                     0,
                     {{"recall", "on"},
                      {"digest", "minmax"},
                      {"agg", "max_raw"},
                      {"alpha", "0.3"},
                      {"recall_from", t.text[0]},
                      {"recall_pages", t.text[1]},
                      {"protect_recent", t.text[2]},
                      {"sink_pages", t.text[4]},
                      {"attend", r.top ? "top" : "resident"}}};
  if (r.prompt_slots != 0) {
    spec.options.push_back({"rho", t.text[3]});
    spec.options.push_back({"min_decode_pages", "2"});
  }
  return spec;
}

// Residency, stamps and lists of every step are those of the model.
void follow(const Rules& r, uint32_t n_prompt, bool pins) {
  const SimShape shape = {1, 2, 2, 64, 512, false};
  Inputs inputs = planted(shape, 700, 6.0f);
  Texts texts;
  Sim sim(cpu_backend(), inputs, spec_of(r, texts));
  sim.prefill(n_prompt);
  const uint32_t prompt_pages = whole_pages(n_prompt);
  std::vector<Model> models(2, Model(r, prompt_pages));
  for (Model& m : models) {
    for (uint32_t page = 0; page < prompt_pages; ++page) m.open(sim.n_tokens());
  }
  sim.on_layer = [&](uint32_t) {
    const uint32_t now = sim.n_tokens() + 1;
    for (uint32_t s = 0; s < 2; ++s) {
      Model& m = models[s];
      if (now % kPageTokens == 1) m.open(now);
      std::vector<float> estimates(m.n_pages());
      for (uint32_t page = 0; page < m.n_pages(); ++page) {
        const float* q = inputs.q(0, now - 1) + size_t{2} * s * 64;
        estimates[page] = std::max(q[page], q[64 + page]) * 6.0f;
      }
      const std::vector<uint32_t> want = m.step(estimates);
      assert_true(sim.attended(0, 2 * s) == want);
      const StreamView v = sim.kv.stream(s);
      std::vector<float> mass;
      for (size_t i = 0; i < want.size(); ++i)
        mass.push_back(std::max(sim.mass(0)[2 * s * v.capacity + i], sim.mass(0)[(2 * s + 1) * v.capacity + i]));
      m.observe(want, mass, 0.3f, now);
      assert_int_equal(v.n_pages, m.n_pages());
      for (uint32_t row = 0; row < v.n_pages; ++row) {
        if ((v.slots[row] != kNoSlot) != (m.resident.count(row) != 0))
          fail_msg("%u tokens: page %u of stream %u is%s resident", now, row, s, v.slots[row] != kNoSlot ? "" : " not");
        assert_int_equal(v.stamp[row], m.stamp[row]);
      }
    }
  };
  sim.steps(60);
  if (pins) {
    for (uint32_t page : {1u, 5u}) {
      sim.pin(page * kPageTokens, page * kPageTokens + 1);
      for (Model& m : models) m.pinned.insert(page);
    }
  }
  sim.steps(300);
  uint64_t n_recalled = 0, n_stamped = 0;
  for (const Model& m : models) n_recalled += m.n_recalled, n_stamped += m.n_stamped;
  assert_int_equal(sim.cold.pages_recalled(), n_recalled);
  assert_true(n_recalled > 200 && n_stamped > 50);
  for (float x : sim.out[0]) assert_false(std::isnan(x));
}

void recall_stamps__raas_follows_the_rules(void**) {
  follow({"raas", 8, 5, 1, 1, false, 0}, 128, false);
  follow({"raas", 8, 5, 2, 2, false, 0}, 100, false);
  follow({"raas", 8, 7, 0, 0, true, 0}, 128, false);  // nothing but what is wanted
  follow({"raas", 8, 4, 2, 1, true, 0}, 40, false);
  follow({"raas", 12, 4, 3, 2, false, 0}, 192, true);
  follow({"raas", 12, 4, 0, 1, true, 0}, 150, true);
  follow({"raas", 8, 5, 2, 1, false, 0, 1}, 128, false);
  follow({"raas", 12, 5, 0, 1, true, 0, 3}, 150, true);
}

void recall_stamps__hybrid_follows_the_rules(void**) {
  follow({"hybrid", 8, 5, 1, 1, false, 3}, 128, false);
  follow({"hybrid", 10, 6, 2, 2, false, 5}, 150, false);
  follow({"hybrid", 10, 9, 0, 0, true, 5}, 160, false);
  follow({"hybrid", 10, 6, 2, 1, false, 5}, 40, false);  // a prompt that does not need its part
  follow({"hybrid", 14, 5, 3, 2, false, 4}, 224, true);
  follow({"hybrid", 14, 5, 0, 1, true, 10}, 200, true);
  follow({"hybrid", 10, 6, 2, 2, false, 5, 1}, 150, false);
  follow({"hybrid", 10, 6, 2, 1, false, 1, 1}, 150, false);  // the first page takes the prompt's only slot
  follow({"hybrid", 10, 6, 0, 1, true, 5, 3}, 40, false);
  follow({"hybrid", 14, 6, 3, 2, false, 4, 1}, 224, true);
}

// ---------------------------------------------------------------------------------------------------------------------

uint32_t resident_prompt_pages(const StreamView& v) {
  uint32_t n = 0;
  for (uint32_t row = 0; row < v.n_pages; ++row)
    n += v.slots[row] != kNoSlot && (v.flags[row] & kPagePrompt) != 0 ? 1u : 0u;
  return n;
}

// A prompt of three pools is read whole, and then leaves the answer its slots; a second one takes them back.
void recall_stamps__rho_splits_the_slots(void**) {
  const SimShape shape = {2, 2, 2, 64, 64, true};
  const Inputs inputs(shape, 1500, 96);
  Sim sim(cpu_backend(), inputs, {"hybrid", 320, 2048, 0, {{"recall", "on"}, {"rho", "0.4"}}});
  sim.prefill(960);
  for (uint32_t s = 0; s < 4; ++s) {
    assert_int_equal(sim.kv.stream(s).n_pages, 60);
    assert_int_equal(sim.kv.stream(s).n_resident, 20);
  }
  sim.steps(150);
  for (uint32_t s = 0; s < 4; ++s) assert_true(resident_prompt_pages(sim.kv.stream(s)) >= 8);
  sim.steps(150);  // 12 pages of the answer and more have been opened
  for (uint32_t s = 0; s < 4; ++s) assert_int_equal(resident_prompt_pages(sim.kv.stream(s)), 8);
  sim.prefill(80);
  sim.steps(100);
  for (uint32_t s = 0; s < 4; ++s) assert_int_equal(resident_prompt_pages(sim.kv.stream(s)), 8);
  assert_int_equal(sim.kv.pages_lost(), 0);
  for (const auto& layer : sim.out) {
    for (float x : layer) assert_false(std::isnan(x));
  }
}

// With all wanted pages back and nothing else attended, stamps decide nothing: it is arkvale, and so quest.
void recall_stamps__attending_what_is_wanted_is_arkvale(void**) {
  const SimShape shape = {2, 2, 3, 64, 48, true};
  const Inputs inputs(shape, 500, 97);
  for (const Backend* backend : kBackends) {
    std::vector<weir_key_value> options = {
        {"recall_from", "6"}, {"recall_pages", "0"}, {"attend", "top"}, {"protect_recent", "1"}};
    Sim arkvale(*backend, inputs, {"arkvale", 160, 1024, 0, options});
    options.push_back({"recall", "on"});
    Sim raas(*backend, inputs, {"raas", 160, 1024, 0, options});
    for (Sim* s : {&arkvale, &raas}) {
      s->prefill(70);
      s->steps(200);
      s->prefill(100);
      s->steps(60);
    }
    assert_same_outputs(raas, arkvale, "raas");
    assert_true(raas.cold.pages_recalled() > 100);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(recall_stamps__defaults),
      cmocka_unit_test(recall_stamps__off),
      cmocka_unit_test(recall_stamps__pools_that_hold_all),
      cmocka_unit_test(recall_stamps__raas_follows_the_rules),
      cmocka_unit_test(recall_stamps__hybrid_follows_the_rules),
      cmocka_unit_test(recall_stamps__rho_splits_the_slots),
      cmocka_unit_test(recall_stamps__attending_what_is_wanted_is_arkvale),
  };
  return cmocka_run_group_tests_name("policy_recall_stamps", tests, nullptr, nullptr);
}
