// ops: history_begin. Mirrors lib/ops/history_begin_ref.cpp, lib/cpu/attn_history.cpp; no device has a kernel. Tables
// against the weights of the prompt's last rows, computed here in f64; an example by hand; sums, lists and what was
// there before.
#include "tests/ops/history_case.h"

namespace weir::test {
namespace {

constexpr double kMaxNmse = 1e-10;  // f32 sums in another order and another exp; logits of 20 have an error of 2e-6

// Both tables of a head from the definition: the mean attention of the rows, times steady_sum.
struct Expected {
  std::vector<float> table[kHistoryKinds];
  double spread = 0.0;
};

Expected expected_tables(HistoryCase& c, uint32_t head) {
  Expected e;
  const uint32_t rows = std::min(c.spec.rows, c.n_tokens), n_sink = c.spec.rules.n_sink;
  std::vector<double> sums[kHistoryKinds] = {std::vector<double>(c.n(), 0.0), std::vector<double>(c.n(), 0.0)};
  for (uint32_t i = 0; i < rows; ++i) {
    const uint32_t t = c.n_tokens - 1 - i;
    double all = 0.0, mean = 0.0, square = 0.0, length = 0.0;
    for (uint32_t pos = n_sink; pos <= t; ++pos) all += std::exp(c.logit_of(head, t, pos));
    for (uint32_t pos = n_sink; pos <= t; ++pos) {
      const double logit = c.logit_of(head, t, pos), share = std::exp(logit) / all;
      sums[kByPosition][pos - n_sink] += share;
      sums[kByDistance][t - pos] += share;
      mean += logit / (t + 1 - n_sink);
      square += logit * logit / (t + 1 - n_sink);
    }
    for (uint32_t d = 0; d < c.spec.head_dim; ++d) length += double{c.query(head, t)[d]} * c.query(head, t)[d];
    if (i == 0 && t >= n_sink) e.spread = (square - mean * mean) / length;
  }
  const double factor = 0.5 / (1.0 - double{c.spec.rules.gamma}) / rows;
  for (uint32_t kind = 0; kind < kHistoryKinds; ++kind) {
    for (double x : sums[kind]) e.table[kind].push_back(static_cast<float>(factor * x));
  }
  return e;
}

void check_sums(HistoryCase& c, HistoryTables& t) {
  const uint32_t d = c.spec.head_dim;
  for (uint32_t kv_head = 0; kv_head < c.spec.n_kv_heads; ++kv_head) {
    assert_int_equal(t.n_summed[kv_head], c.n_tokens);
    assert_int_equal(t.n_known[kv_head], c.n());
    for (uint32_t e = 0; e < d; ++e) {
      double key = 0.0, value = 0.0;
      for (uint32_t pos = c.n_sink(); pos < c.n_tokens; ++pos) {
        key += double{bf16_to_f32(c.key(kv_head, pos)[e])};
        value += double{bf16_to_f32(c.value(kv_head, pos)[e])};
      }
      assert_true(std::fabs(t.sums[size_t{kv_head} * 2 * d + e] - key) < 1e-9);
      assert_true(std::fabs(t.sums[(size_t{kv_head} * 2 + 1) * d + e] - value) < 1e-9);
    }
  }
}

void check_begin(const HistorySpec& s, uint64_t seed, const char* name) {
  HistoryCase c(s, seed);
  std::vector<Expected> want;
  for (uint32_t head = 0; head < s.n_heads(); ++head) want.push_back(expected_tables(c, head));
  for (const Backend* backend : {&reference_backend(), &cpu_backend()}) {
    for (int64_t target : backend == &cpu_backend() ? targets() : std::vector<int64_t>{0}) {
      const TargetScope scope(target);
      HistoryTables t = c.tables();
      c.begin(*backend, t);
      check_sums(c, t);
      for (uint32_t head = 0; head < s.n_heads(); ++head) {
        t.check(head, c.n(), name);
        assert_true(t.heads[head].scale == 1.0);
        assert_true(std::fabs(double{t.heads[head].spread} - want[head].spread) <= 1e-4 * want[head].spread);
        for (uint32_t kind = 0; kind < kHistoryKinds; ++kind) {
          const std::vector<float> got = t.weights(head, kind, c.n());
          assert_true(close_enough(name, got.data(), want[head].table[kind].data(), c.n(), kMaxNmse));
          const uint32_t rows = std::min(s.rows, s.n_start);
          const double sum = t.sum(head, kind, c.n()), steady = 0.5 / (1.0 - double{s.rules.gamma});
          if (s.n_start >= s.rules.n_sink + rows) assert_true(std::fabs(sum - steady) < 1e-5 * steady);
        }
      }
    }
  }
}

void equals_the_definition(void**) {
  HistorySpec s;
  s.n_steps = 0;
  check_begin(s, 1, "quota");
  s.rules.by_threshold = true;
  check_begin(s, 2, "threshold");
  s.soft_cap = 3.0f;
  s.rules.gamma = 0.8f;
  check_begin(s, 3, "soft_cap");
  s.head_dim = 20;
  check_begin(s, 4, "d20");
  s.head_dim = 128;
  s.group = 4;
  s.n_start = 600;  // several tiles of logits
  check_begin(s, 5, "long");
  s.n_start = 256 + 4;  // one tile but for the rows that see less
  s.rows = 32;
  check_begin(s, 6, "tile");
}

// Rows fewer than asked for; rows that see sinks alone, which teach nothing; no token that is no sink.
void equals_the_definition_of_short_prompts(void**) {
  HistorySpec s;
  s.n_steps = 0;
  for (uint32_t rows : {1u, 7u, 20u, 32u}) {
    for (uint32_t n_sink : {0u, 4u, 17u}) {
      for (uint32_t n_start : {1u, 4u, 5u, 17u, 18u, 31u, 40u}) {
        s.rows = rows;
        s.rules.n_sink = n_sink;
        s.n_start = n_start;
        check_begin(s, 10 + n_start, "short");
      }
    }
  }
}

// gamma = 0.95, so that a table adds up to 10, which two rows share. Four tokens behind two sinks; exp(logit) is 1,
// 2, 4 and 8 for both rows, of which the first does not see the last token: shares of 1/7, 2/7, 4/7, and of 1/15, 2/15,
// 4/15, 8/15.
void by_hand(void**) {
  HistorySpec s;
  s.n_kv_heads = s.group = 1;
  s.head_dim = 8;
  s.n_start = 6;
  s.n_steps = 0;
  s.rows = 2;
  s.rules.n_sink = 2;
  for (const Backend* backend : {&reference_backend(), &cpu_backend()}) {
    HistoryCase c(s, 1);
    std::fill(c.q.begin(), c.q.end(), 0.0f);
    for (uint32_t row : {4u, 5u}) c.q[row * 8] = std::log(2.0f) / c.scale;
    for (uint32_t pos = 0; pos < 6; ++pos) {
      for (uint32_t e = 0; e < 8; ++e) c.key(0, pos)[e] = f32_to_bf16(e == 0 ? static_cast<float>(pos) - 2.0f : 0.0f);
    }
    HistoryTables t = c.tables();
    c.begin(*backend, t);
    const double by_position[] = {5.0 / 7 + 5.0 / 15, 10.0 / 7 + 10.0 / 15, 20.0 / 7 + 20.0 / 15, 40.0 / 15};
    const double by_distance[] = {20.0 / 7 + 40.0 / 15, 10.0 / 7 + 20.0 / 15, 5.0 / 7 + 10.0 / 15, 5.0 / 15};
    for (uint32_t i = 0; i < 4; ++i) {
      assert_true(std::fabs(double{t.entry(0, kByPosition, i)} - by_position[i]) < 1e-5);
      assert_true(std::fabs(double{t.entry(0, kByDistance, i)} - by_distance[i]) < 1e-5);
    }
    // Logits 0, 1, 2, 3 times log 2: their variance is 1.25 log^2 2, and the query's square 8 log^2 2.
    assert_true(std::fabs(double{t.heads[0].spread} - 1.25 / 8.0) < 1e-6);
  }
}

// A later prompt of fewer rows than the rules want replaces its part, and the sums are those after a prompt.
void few_rows_leave_a_part(void**) {
  for (const Backend* backend : {&reference_backend(), &cpu_backend()}) {
    HistorySpec s;
    s.rules.eta = 1.0f;
    s.n_start = 100;
    s.n_steps = 60;
    HistoryCase c(s, 5);
    HistoryTables used = c.tables(), fresh = c.tables();
    c.begin(*backend, used);
    for (uint32_t i = 0; i < 30; ++i) {
      c.append();
      c.step(*backend, used);
    }
    HistoryTables before = used;
    c.spec.rules.n_rows = 4 * c.spec.rows;
    c.begin(*backend, used);
    c.begin(*backend, fresh);
    const uint32_t n = c.n();
    for (uint32_t head = 0; head < s.n_heads(); ++head) {
      for (uint32_t kind = 0; kind < kHistoryKinds; ++kind) {
        const double was = before.table(head, kind).sum;
        double sum = 0.0;
        for (uint32_t i = 0; i < n; ++i) {
          const double old_part = 0.75 * 10.0 / was * double{before.entry(head, kind, i)};
          const double want = old_part + 0.25 * double{fresh.entry(head, kind, i)};
          sum += double{used.entry(head, kind, i)};
          assert_true(std::fabs(double{used.entry(head, kind, i)} - want) < 1e-5);
        }
        assert_true(std::fabs(sum - 10.0) < 1e-3);
      }
      used.check(head, n, "a part");
    }
  }
}

// Tables that were learned from other steps are gone, whatever decay and floors they had.
void writes_tables_anew(void**) {
  for (const Backend* backend : {&reference_backend(), &cpu_backend()}) {
    for (bool by_threshold : {false, true}) {
      HistorySpec s;
      s.rules.by_threshold = by_threshold;
      s.rules.eta = 1.0f;
      s.n_start = 100;
      s.n_steps = 200;
      HistoryCase c(s, 3);
      HistoryTables used = c.tables(), fresh = c.tables();
      c.begin(*backend, used);
      for (uint32_t i = 0; i < 30; ++i) {
        c.append();
        c.step(*backend, used);
      }
      while (c.n_tokens < 290) c.append();
      c.begin(*backend, used);
      c.begin(*backend, fresh);
      assert_memory_equal(used.heads.data(), fresh.heads.data(), used.heads.size() * sizeof(HeadHistory));
      assert_true(used.sums == fresh.sums && used.n_summed == fresh.n_summed && used.n_known == fresh.n_known);
      for (uint32_t head = 0; head < s.n_heads(); ++head) {
        for (uint32_t kind = 0; kind < kHistoryKinds; ++kind)
          assert_memory_equal(used.view().entries_of(head, kind), fresh.view().entries_of(head, kind),
                              c.n() * sizeof(float));
        used.check(head, c.n(), "again");
      }
    }
  }
}

// In lists of a number of entries the highest are listed; with thresholds all above them are.
void lists_the_highest(void**) {
  for (bool by_threshold : {false, true}) {
    HistorySpec s;
    s.n_steps = 0;
    s.n_start = 500;
    s.size = {80, 24};
    s.rules.by_threshold = by_threshold;
    HistoryCase c(s, 4);
    HistoryTables t = c.tables();
    c.begin(cpu_backend(), t);
    for (uint32_t head = 0; head < s.n_heads(); ++head) {
      uint32_t n_listed = 0;
      for (uint32_t kind = 0; kind < kHistoryKinds; ++kind) {
        const HistoryTable& table = t.table(head, kind);
        n_listed += table.n_list;
        assert_true(table.n_list > 0 && table.n_list < c.n() / 2);
        const double by_head = listed_by_head(t.fill[head / s.group], 80, s.group);
        if (!by_threshold)
          assert_true(table.n_list <= longest_list(list_target(s.rules, t.heads[head], kind, c.n(), by_head)));
        if (by_threshold) assert_true(table.floor <= threshold_of(s.rules, t.heads[head], kind, c.n()));
      }
      if (!by_threshold) assert_true(n_listed <= 80);
    }
  }
}

}  // namespace
}  // namespace weir::test

int main() {
  using namespace weir::test;
  const CMUnitTest tests[] = {
      {"history_begin__equals_the_definition", equals_the_definition, nullptr, nullptr, nullptr},
      {"history_begin__equals_the_definition_of_short_prompts", equals_the_definition_of_short_prompts, nullptr,
       nullptr, nullptr},
      {"history_begin__by_hand", by_hand, nullptr, nullptr, nullptr},
      {"history_begin__few_rows_leave_a_part", few_rows_leave_a_part, nullptr, nullptr, nullptr},
      {"history_begin__writes_tables_anew", writes_tables_anew, nullptr, nullptr, nullptr},
      {"history_begin__lists_the_highest", lists_the_highest, nullptr, nullptr, nullptr},
  };
  const char* filter = std::getenv("WEIR_TEST_FILTER");
  if (filter != nullptr) cmocka_set_test_filter(filter);
  return cmocka_run_group_tests_name("ops_history_begin", tests, nullptr, nullptr);
}
