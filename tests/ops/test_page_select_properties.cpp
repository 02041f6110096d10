// ops: page_select, properties that hold for any numbers (docs/algorithms.md, "Quest", invariants 2, 3, 4 and 7, "How
// the heads of a group agree" and "What must equal what"), also together with page_score. The cases against the
// reference are in test_page_select.cpp.
#include "tests/ops/digest_case.h"
#include "tests/ops/select_case.h"

namespace weir::test {
namespace {

// Calls f with cases of every mode, group and budget, run on the backend.
template <class F>
void for_cases(const Backend& backend, bool forced_pages, const F& f) {
  for (AggMode agg : kAllModes) {
    for (uint32_t group : {1u, 3u, 4u}) {
      for (uint32_t n_pages : {1u, 2u, 16u, 33u}) {
        for (uint32_t budget = 1; budget < n_pages + 3; budget += 1 + n_pages / 6) {
          SelectSpec s;
          s.agg = agg;
          s.group = group;
          s.n_pages = n_pages;
          s.budget = budget;
          s.candidate_flags = forced_pages ? uint32_t{kPagePrompt} : 0u;
          s.n_sink_pages = forced_pages ? 2 : 0;
          s.kept = forced_pages;
          s.n_values = budget % 2 == 0 ? 7 : 0;
          SelectCase c(s, 11 * n_pages + group);
          c.run(backend);
          f(c);
        }
      }
    }
  }
}

bool contains(const std::vector<uint32_t>& rows, uint32_t row) {
  return std::find(rows.begin(), rows.end(), row) != rows.end();
}

void list_has_as_many_pages_as_the_budget(const Backend& backend) {
  for_cases(backend, false, [](const SelectCase& c) {
    for (uint32_t i = 0; i < c.lists(); ++i)
      assert_int_equal(c.n_select[i], std::min(c.spec.budget, c.n_pages[c.stream_of(i)]));
  });
  // With candidates: the other pages are listed as well, and forced pages are listed even beyond the budget.
  for_cases(backend, true, [](const SelectCase& c) {
    for (uint32_t i = 0; i < c.lists(); ++i) {
      const uint32_t stream = c.stream_of(i);
      uint32_t n_competing = 0, n_forced = 0;
      for (uint32_t row = 0; row < c.n_pages[stream]; ++row) {
        n_competing += c.competes(stream, row) ? 1u : 0u;
        n_forced += c.competes(stream, row) && c.forced(stream, row) ? 1u : 0u;
      }
      const uint32_t want = c.n_pages[stream] - n_competing + std::max(n_forced, std::min(c.spec.budget, n_competing));
      assert_int_equal(c.n_select[i], want);
    }
  });
}

void lists_ascend_and_hold_what_is_forced(const Backend& backend) {
  const auto check = [](const SelectCase& c) {
    for (uint32_t i = 0; i < c.lists(); ++i) {
      const std::vector<uint32_t> rows = c.list(i);
      const uint32_t stream = c.stream_of(i), n = c.n_pages[stream];
      for (size_t k = 1; k < rows.size(); ++k) assert_true(rows[k - 1] < rows[k]);
      if (n == 0) continue;
      assert_int_equal(rows.back(), n - 1);  // the open page
      for (uint32_t row = 0; row < n; ++row)
        assert_true(contains(rows, row) || (c.competes(stream, row) && !c.forced(stream, row)));
      for (uint32_t k = c.n_select[i]; k < c.capacity; ++k)
        assert_int_equal(c.select[size_t{i} * c.capacity + k], UINT32_MAX);  // nothing is written beyond the list
    }
  };
  for_cases(backend, false, check);
  for_cases(backend, true, check);
}

void larger_budget_gives_a_superset(const Backend& backend) {
  for (AggMode agg : kAllModes) {
    for (uint32_t n_values : {0u, 4u}) {
      SelectSpec s;
      s.agg = agg;
      s.group = 3;
      s.n_pages = 40;
      s.n_sink_pages = 1;
      s.candidate_flags = n_values == 0 ? 0u : uint32_t{kPagePrompt};
      s.n_values = n_values;
      std::vector<std::vector<uint32_t>> before;
      for (s.budget = 1; s.budget <= 42; ++s.budget) {
        SelectCase c(s, 77);
        c.run(backend);
        std::vector<std::vector<uint32_t>> now;
        for (uint32_t i = 0; i < c.lists(); ++i) now.push_back(c.list(i));
        for (size_t i = 0; i < before.size(); ++i)
          assert_true(std::includes(now[i].begin(), now[i].end(), before[i].begin(), before[i].end()));
        before = now;
      }
      for (uint32_t i = 0; i < before.size(); ++i)  // in the end all pages
        assert_int_equal(before[i].size(), 40 - i / (agg == AggMode::kQHead ? 3 : 1));
    }
  }
}

// With one head every mode keeps the order of the estimates and lists the same pages, however small the probabilities.
void one_head_makes_all_modes_equal(const Backend& backend) {
  for (uint32_t budget : {1u, 2u, 7u, 20u, 49u, 60u}) {
    std::vector<std::vector<uint32_t>> want;
    for (AggMode agg : kAllModes) {
      SelectSpec s;
      s.agg = agg;
      s.n_pages = 50;
      s.budget = budget;
      s.n_values = 41;
      SelectCase c(s, 5 + budget);
      c.scale = 40.0f;  // probabilities far below the smallest float
      c.run(backend);
      if (want.empty()) want = {c.list(0), c.list(1)};
      assert_true(c.list(0) == want[0] && c.list(1) == want[1]);
    }
  }
}

// What the op does not read has no influence: estimates of the last row, of pages that do not compete, and of rows
// beyond the table.
void unread_estimates_leave_no_trace(const Backend& backend) {
  for (AggMode agg : kAllModes) {
    for (float other : {NAN, 1e30f, -INFINITY}) {
      SelectSpec s;
      s.agg = agg;
      s.group = 3;
      s.n_pages = 30;
      s.candidate_flags = kPagePrompt;
      s.budget = 6;
      s.n_values = 0;
      SelectCase c(s, 12);
      c.run(backend);
      const std::vector<float> group_score = c.group_score;
      const std::vector<uint32_t> select = c.select;
      for (uint32_t head = 0; head < 6; ++head) {
        for (uint32_t row = 0; row < c.capacity; ++row) {
          if (row + 1 >= c.n_pages[head / 3] || !c.competes(head / 3, row))
            c.score[size_t{head} * c.capacity + row] = other;
        }
      }
      c.run(backend);
      assert_memory_equal(c.group_score.data(), group_score.data(), group_score.size() * sizeof(float));
      assert_true(c.select == select);
    }
  }
}

// Lists of a cache of one stream by its estimates, [group, capacity].
std::vector<std::vector<uint32_t>> lists_of(const Backend& backend, PagedKv& kv, const std::vector<float>& score,
                                            AggMode agg, uint32_t budget) {
  SelectSpec s;
  s.agg = agg;
  s.n_kv_heads = 1;
  s.group = static_cast<uint32_t>(score.size() / kv.capacity());
  s.n_pages = kv.n_pages(0);
  s.budget = budget;
  SelectCase c(s, 1);
  assert_int_equal(c.capacity, kv.capacity());
  c.score = score;
  c.scale = 1.0f / std::sqrt(static_cast<float>(kv.view().head_dim));
  c.run(backend);
  std::vector<std::vector<uint32_t>> lists;
  for (uint32_t i = 0; i < c.lists(); ++i) lists.push_back(c.list(i));
  return lists;
}

// Pages of one token: the selection is that of the exact dot products. Whole numbers, so that ties are exact.
void pages_of_one_token_give_the_exact_top(const Backend& backend) {
  for (uint32_t d : {8u, 20u, 64u, 96u}) {
    constexpr uint32_t n = 60;
    PagedKv kv({.n_kv_heads = 1, .head_dim = d, .n_pages = n, .last_len = 1}, d);
    Random random(3);
    std::vector<float> q(d), key(d);
    for (float& x : q) x = static_cast<float>(random.below(5)) - 2.0f;
    std::vector<float> dots;
    for (uint32_t row = 0; row < n; ++row) {
      kv.len(0, row) = 1;
      dots.push_back(0.0f);
      for (uint32_t i = 0; i < d; ++i) {
        key[i] = static_cast<float>(random.below(5)) - 2.0f;
        dots[row] += q[i] * key[i];
      }
      set_key(kv, row, 0, key);
    }
    build_digests(kv);
    std::vector<uint32_t> order(n - 1);
    for (uint32_t row = 0; row + 1 < n; ++row) order[row] = row;
    std::stable_sort(order.begin(), order.end(), [&](uint32_t x, uint32_t y) { return dots[x] > dots[y]; });
    const std::vector<float> score = page_scores(backend, kv, q);
    for (uint32_t budget : {1u, 2u, 8u, 30u, 60u}) {
      std::vector<uint32_t> want(order.begin(), order.begin() + budget - 1);
      want.push_back(n - 1);
      std::sort(want.begin(), want.end());
      for (AggMode agg : kAllModes) assert_true(lists_of(backend, kv, score, agg, budget)[0] == want);
    }
  }
}

// Every pair of pages: the keys of one lie well within the bounds of the other, and it is never listed before that.
void dominated_page_is_never_listed_before(const Backend& backend) {
  for (uint32_t d : {8u, 20u, 64u, 128u}) {
    for (uint64_t seed = 1; seed < 5; ++seed) {
      constexpr uint32_t n = 21;
      PagedKv kv({.n_kv_heads = 1, .head_dim = d, .n_pages = n, .last_len = 1}, seed);
      build_digests(kv);
      for (uint32_t row = 0; row + 1 < n; row += 2) {  // the even row is the dominated one, so that ties would show
        const KvView v = kv.view();
        const uint16_t* bounds = v.digest_of(0, row + 1);
        Random random(row + seed);
        for (uint32_t t = 0; t < kPageTokens; ++t) {
          for (uint32_t i = 0; i < d; ++i) {
            const float high = bf16_to_f32(bounds[i]), low = bf16_to_f32(bounds[d + i]);
            const float at = 0.1f + 0.8f * static_cast<float>(random.uniform());
            kv.key(0, row, t)[i] = f32_to_bf16(low + at * (high - low));
          }
        }
      }
      build_digests(kv);
      Random random(seed + 50);
      const std::vector<float> score = page_scores(backend, kv, random.normals(size_t{3} * d));
      for (AggMode agg : kAllModes) {
        for (uint32_t budget = 1; budget <= n; ++budget) {
          for (const std::vector<uint32_t>& rows : lists_of(backend, kv, score, agg, budget)) {
            for (uint32_t row = 0; row + 1 < n; row += 2) assert_true(!contains(rows, row) || contains(rows, row + 1));
          }
        }
      }
    }
  }
}

// Every kind and mode selects a page of keys that align with the query among isotropic pages.
void planted_page_is_found(const Backend& backend) {
  for (DigestKind kind : kAllDigests) {
    constexpr uint32_t d = 64, n = 40;
    PagedKv kv({.n_kv_heads = 1, .head_dim = d, .n_pages = n, .digest = kind}, 9);
    Random random(10);
    std::vector<float> q = random.normals(d, 2.0f);
    for (uint32_t t = 0; t < kPageTokens; ++t) set_key(kv, 23, t, q);
    build_digests(kv);
    for (uint32_t i = 0; i < d; ++i) q.push_back(0.5f * q[i] + random.normal());  // a second head, roughly equal
    const std::vector<float> score = page_scores(backend, kv, q);
    for (AggMode agg : kAllModes) assert_true(contains(lists_of(backend, kv, score, agg, 2)[0], 23));
  }
}

}  // namespace
}  // namespace weir::test

int main() {
  using namespace weir::test;
#define WEIR_PROPERTY(name) \
  { "page_select__" #name, name }
  return run_group(
      "ops/page_select_properties", {},
      {WEIR_PROPERTY(list_has_as_many_pages_as_the_budget), WEIR_PROPERTY(lists_ascend_and_hold_what_is_forced),
       WEIR_PROPERTY(larger_budget_gives_a_superset), WEIR_PROPERTY(one_head_makes_all_modes_equal),
       WEIR_PROPERTY(unread_estimates_leave_no_trace), WEIR_PROPERTY(pages_of_one_token_give_the_exact_top),
       WEIR_PROPERTY(dominated_page_is_never_listed_before), WEIR_PROPERTY(planted_page_is_found)});
#undef WEIR_PROPERTY
}
