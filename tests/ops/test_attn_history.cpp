// ops: attn_history. Mirrors lib/ops/attn_history_ref.cpp, lib/cpu/attn_history.cpp; no device has a kernel. Both start
// every step from the same tables, so that nothing adds up; outputs, chosen tokens, tables and lists are compared.
// Rules by hand are in tests/ops/test_attn_history_rules.cpp.
#include <iterator>

#include "tests/ops/history_case.h"

namespace weir::test {
namespace {

constexpr double kMaxNmse = 1e-11;    // f32 sums in another order and another exp
constexpr double kTableNmse = 1e-10;  // weights are divided by such a sum, and logits of 20 have an error of 2e-6

// Two logits this near can change places by rounding.
constexpr double kNearTie = 2e-5;

struct Tally {
  uint32_t n_heads = 0, n_ties = 0, n_bypassed = 0, n_left = 0, n_cut = 0;
};

// Whether two choices of a head differ by nothing but near ties of logits.
bool is_near_tie(HistoryCase& c, uint32_t head, const std::vector<uint32_t>& a, const std::vector<uint32_t>& b) {
  std::vector<uint32_t> differ;
  std::set_symmetric_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(differ));
  if (a.size() != b.size()) return false;
  double low = INFINITY, high = -INFINITY;
  for (uint32_t token : differ) {
    low = std::min(low, c.logit(head, token + c.n_sink()));
    high = std::max(high, c.logit(head, token + c.n_sink()));
  }
  return high - low <= kNearTie;
}

void compare_tables(HistoryCase& c, uint32_t head, HistoryTables& got, HistoryTables& want, const std::string& name) {
  const uint32_t n = c.n();
  assert_true(std::fabs(got.heads[head].spread - want.heads[head].spread) <= 1e-5f * want.heads[head].spread);
  assert_true(got.heads[head].scale == want.heads[head].scale);
  for (uint32_t kind = 0; kind < kHistoryKinds; ++kind) {
    const std::vector<float> x = got.weights(head, kind, n), y = want.weights(head, kind, n);
    assert_true(close_enough(name.c_str(), x.data(), y.data(), n, kTableNmse));
    const auto target = [&](HistoryTables& t) {
      const double by_head = listed_by_head(t.fill[head / c.spec.group], c.spec.size.candidates, c.spec.group);
      return list_target(c.spec.rules, t.heads[head], kind, n, by_head);
    };
    if (!c.spec.rules.by_threshold && target(got) != target(want)) continue;  // at the border of a whole number
    const float a = got.table(head, kind).floor, b = want.table(head, kind).floor;
    if (std::fabs(a - b) > 1e-5f * b)
      fail_msg("%s: head %u, table %u: the floor is %g, not %g", name.c_str(), head, kind, double{a}, double{b});
  }
}

void compare_step(HistoryCase& c, HistoryTables& tables, const std::string& name, Tally& tally) {
  HistoryTables before = tables;
  const HistoryStep want = c.step(reference_backend(), before), got = c.step(cpu_backend(), tables);
  const uint32_t d = c.spec.head_dim;
  assert_true(got.n_read == want.n_read);
  assert_true(tables.n_summed == before.n_summed && tables.n_known == before.n_known);
  assert_memory_equal(tables.sums.data(), before.sums.data(), before.sums.size() * sizeof(double));
  assert_true(tables.fill == before.fill);
  for (uint32_t head = 0; head < c.spec.n_heads(); ++head) {
    tables.check(head, c.n(), name.c_str());
    before.check(head, c.n(), "the reference");
    ++tally.n_heads;
    tally.n_bypassed += want.chosen[head].empty() && c.n() > 0 ? 1 : 0;
    tally.n_left += want.n_read[head / c.spec.group] < c.n_tokens ? 1 : 0;
    if (got.chosen[head] != want.chosen[head]) {
      if (!is_near_tie(c, head, got.chosen[head], want.chosen[head]))
        fail_msg("%s: %zu tokens of head %u, the reference has %zu others", name.c_str(), got.chosen[head].size(), head,
                 want.chosen[head].size());
      ++tally.n_ties;
      continue;
    }
    if (!close_enough(name.c_str(), &got.out[size_t{head} * d], &want.out[size_t{head} * d], d, kMaxNmse))
      fail_msg("%s: head %u", name.c_str(), head);
    compare_tables(c, head, tables, before, name);
  }
}

// A prompt's end and the steps after it on every instruction set.
Tally check_against_reference(const HistorySpec& s, uint64_t seed, const std::string& name) {
  Tally tally;
  for (int64_t target : targets()) {
    const TargetScope scope(target);
    HistoryCase c(s, seed);
    HistoryTables tables = c.tables(), want = c.tables();
    c.begin(cpu_backend(), tables);
    c.begin(reference_backend(), want);
    for (uint32_t head = 0; head < s.n_heads(); ++head) {
      tables.check(head, c.n(), name.c_str());
      compare_tables(c, head, tables, want, name + "_begin");
    }
    while (c.n_tokens < c.n_all) {
      c.append();
      compare_step(c, tables, name, tally);
    }
  }
  if (tally.n_ties * 100 > tally.n_heads) fail_msg("%s: %u near ties are too many", name.c_str(), tally.n_ties);
  return tally;
}

void equals_the_reference(void**) {
  for (uint32_t d : kHeadDims) {
    for (uint32_t group : kGroups) {
      if (!is_tested_together(d, group)) continue;
      HistorySpec s;
      s.head_dim = d;
      s.group = group;
      s.n_start = 90;
      s.n_steps = 2;
      s.size = {40, 20};
      const std::string name = "d" + std::to_string(d) + "_g" + std::to_string(group);
      const Tally tally = check_against_reference(s, 7, name);
      assert_true(tally.n_left > 0 && tally.n_bypassed < tally.n_heads);
    }
  }
  HistorySpec odd;
  odd.head_dim = 20;
  check_against_reference(odd, 8, "d20");
}

void equals_the_reference_in_all_modes(void**) {
  for (uint64_t seed : {11u, 12u}) {
    for (bool by_threshold : {false, true}) {
      HistorySpec s;
      s.rules.by_threshold = by_threshold;
      const std::string mode = by_threshold ? "threshold_" : "quota_";
      for (float lambda : {0.0f, 0.3f, 2.0f}) {
        if (!by_threshold && lambda != 0.0f) continue;
        s.rules.lambda = lambda;
        check_against_reference(s, seed, mode + "lambda" + std::to_string(lambda));
      }
      s.rules.lambda = 0.2f;
      HistorySpec bent = s;
      bent.soft_cap = 4.0f;
      bent.sinks = true;
      check_against_reference(bent, seed, mode + "bent");
      bent.kept_every = 5;
      bent.rules.n_recent = 1;
      check_against_reference(bent, seed, mode + "pinned");
      HistorySpec none = s;
      none.rules.n_sink = 0;
      none.rules.n_recent = 17;
      none.rows = 1;
      check_against_reference(none, seed, mode + "without_sinks");
      HistorySpec many = s;
      many.rules.n_sink = 35;
      many.rows = 32;
      check_against_reference(many, seed, mode + "many_sinks");
      HistorySpec flat = s;
      flat.key_scale = 0.1f;  // nothing stands out
      flat.rules.eta = 1.0f;
      check_against_reference(flat, seed, mode + "flat");
      HistorySpec tight = s;
      tight.size = {25, 24};  // hardly a neighbour has room
      check_against_reference(tight, seed, mode + "tight");
      HistorySpec one = s;
      one.size = {4, 1};
      check_against_reference(one, seed, mode + "one");
    }
  }
}

// Streams that grow past the number of candidates and of tokens attended, and such as begin with less than their sinks.
void equals_the_reference_at_borders(void**) {
  for (bool by_threshold : {false, true}) {
    HistorySpec s;
    s.rules.by_threshold = by_threshold;
    for (const uint32_t n_start : {1u, 3u, 4u, 5u, 12u, 60u, 68u}) {
      s.n_start = n_start;
      s.n_steps = 20;
      check_against_reference(s, 21, "from" + std::to_string(n_start));
    }
    s.n_start = 200;
    s.n_steps = 12;
    for (const HistorySize size : {HistorySize{202, 24}, HistorySize{202, 202}, HistorySize{400, 24},
                                   HistorySize{400, 400}, HistorySize{205, 203}}) {
      s.size = size;
      check_against_reference(s, 22, "size" + std::to_string(size.candidates) + "_" + std::to_string(size.top));
    }
    // A stream that its sinks hold for some steps.
    s.rules.n_sink = 20;
    s.n_start = 16;
    check_against_reference(s, 23, "only_sinks");
  }
}

// Weights halve with every step, so that they are brought back to a scale of 1 after twenty.
void equals_the_reference_after_rescaling(void**) {
  for (bool by_threshold : {false, true}) {
    HistorySpec s;
    s.rules.by_threshold = by_threshold;
    s.rules.gamma = 0.5f;
    s.rules.eta = 1.0f;
    s.n_start = 150;
    s.n_steps = 27;
    HistoryCase c(s, 31);
    HistoryTables t = c.tables();
    c.begin(cpu_backend(), t);
    double least = 1.0;
    while (c.n_tokens < c.n_all) {
      c.append();
      c.step(cpu_backend(), t);
      least = std::min(least, t.heads[0].scale);
    }
    assert_true(least < 2.0 * kMinHistoryScale && t.heads[0].scale > least);
    check_against_reference(s, 31, "rescaled");
  }
}

// Some heads attend nothing but their sinks, in some steps, beside others of their group.
void equals_the_reference_when_bypassed(void**) {
  for (bool by_threshold : {false, true}) {
    for (bool bent : {false, true}) {
      HistorySpec s;
      s.rules.by_threshold = by_threshold;
      s.rules.eta = 0.3f;
      s.sink_pull = 6.0f;
      s.key_scale = 1.0f;
      s.group = 5;
      s.sinks = bent;
      s.soft_cap = bent ? 8.0f : 0.0f;
      const Tally tally = check_against_reference(s, 41, "bypassed");
      if (tally.n_bypassed * 10 < tally.n_heads || tally.n_bypassed * 10 > 9 * tally.n_heads)
        fail_msg("%u of %u heads are bypassed", tally.n_bypassed, tally.n_heads);
      s.rules.eta = 0.0f;  // all
      const Tally all = check_against_reference(s, 42, "all_bypassed");
      assert_int_equal(all.n_bypassed, all.n_heads);
    }
  }
}

// While heads were bypassed the stream has doubled, so that thresholds fell below what was listed.
void equals_the_reference_after_a_long_bypass(void**) {
  for (bool by_threshold : {true, false}) {
    for (int64_t target : targets()) {
      const TargetScope scope(target);
      HistorySpec s;
      s.rules.by_threshold = by_threshold;
      s.rules.lambda = 1.0f;
      s.n_start = 100;
      s.n_steps = 400;
      s.size = {100, 24};
      HistoryCase c(s, 51);
      HistoryTables t = c.tables();
      c.begin(cpu_backend(), t);
      Tally tally;
      while (c.n_tokens < c.n_all) {
        c.append();
        c.spec.rules.eta = c.n_tokens % 100 < 4 ? 1.0f : 0.0f;
        if (c.n_tokens % 100 < 4)
          compare_step(c, t, "long_bypass", tally);
        else
          c.step(cpu_backend(), t);
      }
      assert_int_equal(tally.n_bypassed, 0);
    }
  }
}

// Candidates that were found before the query give the bits of those found after it: also of groups of which some heads
// are bypassed, and of streams that have more than there is room for.
void looking_ahead_changes_nothing(void**) {
  uint32_t n_found = 0, n_others = 0;
  for (int64_t target : targets()) {
    const TargetScope scope(target);
    for (bool by_threshold : {false, true}) {
      for (uint32_t room : {4000u, 62u}) {
        HistorySpec s;
        s.rules.by_threshold = by_threshold;
        s.rules.eta = 0.6f;
        s.sink_pull = 5.0f;
        s.key_scale = 1.0f;
        s.kept_every = room == 62 ? 7 : 0;
        s.n_steps = 40;
        HistoryCase c(s, 61), ahead(s, 61);
        HistoryTables t = c.tables(), u = ahead.tables();
        c.begin(cpu_backend(), t);
        ahead.begin(cpu_backend(), u);
        while (c.n_tokens < c.n_all) {
          c.append();
          ahead.append();
          const HistoryStep want = c.step(cpu_backend(), t), got = ahead.step(cpu_backend(), u, room);
          for (uint32_t n : got.n_found) n != 0 ? ++n_found : ++n_others;
          assert_memory_equal(got.out.data(), want.out.data(), want.out.size() * sizeof(float));
          assert_true(got.chosen == want.chosen && got.n_read == want.n_read && u.fill == t.fill);
          assert_true(u.n_known == t.n_known && u.n_summed == t.n_summed);
          for (uint32_t head = 0; head < s.n_heads(); ++head) {
            u.check(head, c.n(), "ahead");
            for (uint32_t kind = 0; kind < kHistoryKinds; ++kind)
              assert_true(u.weights(head, kind, c.n()) == t.weights(head, kind, c.n()));
          }
        }
      }
    }
  }
  print_message("found ahead %u times, not %u times\n", n_found, n_others);
  assert_true(n_found > 100 && n_others > 100);
}

// Far more tokens are pinned than a list has room for, and all of them matter alike.
void pinned_tokens_do_not_flood_a_list(void**) {
  for (int64_t target : targets()) {
    const TargetScope scope(target);
    HistorySpec s;
    s.n_start = 900;
    s.n_steps = 6;
    s.kept_every = 2;
    s.key_scale = 0.0f;
    s.rules.eta = 1.0f;
    s.size = {40, 16};
    HistoryCase c(s, 61);
    HistoryTables t = c.tables();
    c.begin(cpu_backend(), t);
    Tally tally;
    while (c.n_tokens < c.n_all) {
      c.append();
      compare_step(c, t, "pinned", tally);
    }
  }
}

void threads_change_no_bit(void**) {
  for (uint32_t n_threads : {2u, 3u, 8u}) {
    HistorySpec s;
    s.n_kv_heads = 5;
    s.rules.eta = 0.3f;
    s.sink_pull = 4.0f;
    s.n_threads = 1;
    HistoryCase one(s, 71);
    s.n_threads = n_threads;
    HistoryCase many(s, 71);
    HistoryTables a = one.tables(), b = many.tables();
    one.begin(cpu_backend(), a);
    many.begin(cpu_backend(), b);
    while (one.n_tokens < one.n_all) {
      one.append();
      many.append();
      const HistoryStep x = one.step(cpu_backend(), a), y = many.step(cpu_backend(), b);
      assert_true(x.chosen == y.chosen && x.n_read == y.n_read);
      assert_memory_equal(x.out.data(), y.out.data(), x.out.size() * sizeof(float));
      assert_memory_equal(a.entries.data(), b.entries.data(), a.entries.size() * sizeof(float));
      assert_memory_equal(a.heads.data(), b.heads.data(), a.heads.size() * sizeof(HeadHistory));
      assert_true(a.lists == b.lists);
    }
  }
}

// Keys that are no numbers are attended by nobody, and queries of that kind teach nothing; the tables stay whole.
void nan_counts_for_nothing(void**) {
  for (int64_t target : targets()) {
    const TargetScope scope(target);
    for (bool by_threshold : {false, true}) {
      HistorySpec s;
      s.n_kv_heads = 1;
      s.rules.by_threshold = by_threshold;
      s.rules.eta = 1.0f;
      HistoryCase c(s, 81);
      const size_t row = size_t{s.n_heads()} * s.head_dim;
      c.key(0, 1)[2] = c.key(0, 4)[0] = c.key(0, 250)[3] = PagedKv::kNan;  // the first is a sink
      c.key(0, 40)[7] = 0x7F80;                                            // infinite, and so are logits
      for (uint32_t pos : {285u, 290u}) std::fill_n(&c.q[pos * row], row, pos == 285 ? NAN : 0.0f);
      HistoryTables t = c.tables(), want = c.tables();
      c.begin(cpu_backend(), t);
      c.begin(reference_backend(), want);
      for (uint32_t head = 0; head < s.group; ++head) {
        t.check(head, c.n(), "begin");
        compare_tables(c, head, t, want, "nan_begin");
        // Rows whose logit of the infinite key is infinite teach nothing, the others do.
        assert_true(t.entry(head, kByPosition, 0) == 0.0f && t.entry(head, kByPosition, 246) == 0.0f);
        assert_true(t.sum(head, kByPosition, c.n()) > 0.0);
      }
      c.key(0, 40)[7] = 0;
      Tally tally;
      for (uint32_t i = 0; i < 3; ++i) {
        c.append();
        if (i == 1) c.key(0, c.n_tokens - 1)[0] = PagedKv::kNan;  // a recent token, so that it is a candidate
        compare_step(c, t, "nan", tally);
      }
      HistoryTables before = t;
      c.append();
      std::fill_n(&c.q[(c.n_tokens - 1) * row], s.head_dim, NAN);  // of the first head
      const HistoryStep none = c.step(cpu_backend(), t);
      for (uint32_t e = 0; e < s.head_dim; ++e) assert_true(std::isnan(none.out[e]));
      assert_true(t.sum(0, kByPosition, c.n()) < before.sum(0, kByPosition, c.n() - 1));  // decayed, and no more
      c.append();
      compare_step(c, t, "after_nan", tally);
    }
  }
}

// A model's sink that is far above all logits: what is attended beside it teaches as long as it is a number, and the
// tables stay finite.
void sinks_far_above_the_tokens(void**) {
  for (int64_t target : targets()) {
    const TargetScope scope(target);
    for (float sink : {60.0f, 110.0f, 300.0f}) {
      HistorySpec s;
      s.n_kv_heads = 1;
      s.rules.eta = 1.0f;
      s.sinks = true;
      HistoryCase c(s, 83);
      c.sinks.assign(s.n_heads(), sink);
      HistoryTables t = c.tables();
      c.begin(reference_backend(), t);
      for (uint32_t i = 0; i < 3; ++i) {
        HistoryTables want = t, before = t;
        c.append();
        (void)c.step(reference_backend(), want);
        (void)c.step(cpu_backend(), t);
        for (uint32_t head = 0; head < s.group; ++head) {
          t.check(head, c.n(), "far sink");
          compare_tables(c, head, t, want, "far_sink");
          const double decayed = before.sum(head, kByPosition, c.n() - 1) * double{s.rules.gamma};
          const double more = t.sum(head, kByPosition, c.n()) - decayed;
          assert_true(std::fabs(more - (sink == 60.0f ? 0.5 : 0.0)) < 1e-3);
        }
      }
    }
  }
}

}  // namespace
}  // namespace weir::test

int main() {
  using namespace weir::test;
  const CMUnitTest tests[] = {
      {"attn_history__equals_the_reference", equals_the_reference, nullptr, nullptr, nullptr},
      {"attn_history__equals_the_reference_in_all_modes", equals_the_reference_in_all_modes, nullptr, nullptr, nullptr},
      {"attn_history__equals_the_reference_at_borders", equals_the_reference_at_borders, nullptr, nullptr, nullptr},
      {"attn_history__equals_the_reference_after_rescaling", equals_the_reference_after_rescaling, nullptr, nullptr,
       nullptr},
      {"attn_history__equals_the_reference_when_bypassed", equals_the_reference_when_bypassed, nullptr, nullptr,
       nullptr},
      {"attn_history__equals_the_reference_after_a_long_bypass", equals_the_reference_after_a_long_bypass, nullptr,
       nullptr, nullptr},
      {"attn_history__pinned_tokens_do_not_flood_a_list", pinned_tokens_do_not_flood_a_list, nullptr, nullptr, nullptr},
      {"attn_history__looking_ahead_changes_nothing", looking_ahead_changes_nothing, nullptr, nullptr, nullptr},
      {"attn_history__threads_change_no_bit", threads_change_no_bit, nullptr, nullptr, nullptr},
      {"attn_history__nan_counts_for_nothing", nan_counts_for_nothing, nullptr, nullptr, nullptr},
      {"attn_history__sinks_far_above_the_tokens", sinks_far_above_the_tokens, nullptr, nullptr, nullptr},
  };
  const char* filter = std::getenv("WEIR_TEST_FILTER");
  if (filter != nullptr) cmocka_set_test_filter(filter);
  return cmocka_run_group_tests_name("ops_attn_history", tests, nullptr, nullptr);
}
