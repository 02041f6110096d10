// One call of page_select with seeded contents, and the list that sorting the given scores gives.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "tests/ops/harness.h"

namespace weir::test {

constexpr AggMode kAllModes[] = {AggMode::kSumProb, AggMode::kMaxProb, AggMode::kMeanRaw,
                                 AggMode::kMaxRaw,  AggMode::kMaxZ,    AggMode::kQHead};

inline std::string mode_name(AggMode mode) {
  const char* const names[] = {"sum_prob", "max_prob", "mean_raw", "max_raw", "qhead", "max_z"};
  return names[static_cast<size_t>(mode)];
}

// Modes whose scores backends may round differently.
inline bool is_rounded(AggMode mode) {
  return mode == AggMode::kSumProb || mode == AggMode::kMaxProb || mode == AggMode::kMaxZ;
}
inline bool is_softmax(AggMode mode) { return mode == AggMode::kSumProb || mode == AggMode::kMaxProb; }

struct SelectSpec {
  AggMode agg = AggMode::kSumProb;
  uint32_t n_kv_heads = 2, group = 1;
  uint32_t n_pages = 10;  // of stream 0; every following stream has one fewer, down to none
  uint32_t budget = 4;
  uint32_t candidate_flags = 0;
  uint32_t n_sink_pages = 0;
  bool kept = false;        // some pages have kPageKept
  uint32_t n_values = 17;   // estimates are whole numbers around 0; 0: arbitrary numbers
  bool odd_values = false;  // some estimates are NaN, -inf or -0
  uint32_t n_threads = 1;
};

class SelectCase {
 public:
  static constexpr float kUntouched = -77.0f;

  SelectCase(const SelectSpec& s, uint64_t seed) : spec(s), capacity(s.n_pages + 3) {
    Random random(seed);
    const size_t n_heads = size_t{s.n_kv_heads} * s.group;
    score.assign(n_heads * capacity, NAN);
    for (float& x : score) {
      x = s.n_values > 0 ? static_cast<float>(random.below(s.n_values)) - static_cast<float>(s.n_values / 2)
                         : 4.0f * random.normal();
      const uint32_t odd = s.odd_values ? random.below(16) : 16;
      x = odd == 0 ? NAN : odd == 1 ? -INFINITY : odd == 2 ? -0.0f : x;
    }
    flags.resize(size_t{s.n_kv_heads} * capacity);
    for (uint32_t& f : flags) {
      f = random.below(2) == 0 ? uint32_t{kPagePrompt} : 0u;
      if (random.below(4) == 0) f |= kPagePinned;  // pinned pages must not leave, but need not be attended
      if (s.kept && random.below(8) == 0) f |= kPageKept;
    }
    for (uint32_t i = 0; i < s.n_kv_heads; ++i) n_pages.push_back(s.n_pages - std::min(i, s.n_pages));
  }

  void run(const Backend& backend) {
    const uint32_t n_lists = lists();
    group_score.assign(size_t{spec.n_kv_heads} * capacity, kUntouched);
    select.assign(size_t{n_lists} * capacity, UINT32_MAX);
    n_select.assign(n_lists, UINT32_MAX);
    PageSelectArgs a = {};
    a.score = score.data();
    a.group_score = group_score.data();
    a.select = select.data();
    a.n_select = n_select.data();
    a.flags = flags.data();
    a.n_pages = n_pages.data();
    a.capacity = capacity;
    a.n_heads = spec.n_kv_heads * spec.group;
    a.n_kv_heads = spec.n_kv_heads;
    a.scale = scale;
    a.agg = spec.agg;
    a.budget = spec.budget;
    a.candidate_flags = spec.candidate_flags;
    a.n_sink_pages = spec.n_sink_pages;
    OpShapes shapes;
    shapes.n_threads = spec.n_threads;
    shapes.n_heads = a.n_heads;
    shapes.n_kv_heads = a.n_kv_heads;
    shapes.max_pages = capacity;
    Machine machine(backend, shapes);
    machine.check(backend.ops.page_select(machine.cx(), a));
    for (uint32_t n : n_select) assert_true(n <= capacity);
  }

  uint32_t lists() const { return spec.agg == AggMode::kQHead ? spec.n_kv_heads * spec.group : spec.n_kv_heads; }
  uint32_t stream_of(uint32_t list) const { return list / (lists() / spec.n_kv_heads); }
  std::vector<uint32_t> list(uint32_t i) const {
    const auto first = select.begin() + static_cast<ptrdiff_t>(size_t{i} * capacity);
    return {first, first + n_select[i]};
  }
  bool competes(uint32_t stream, uint32_t row) const {
    return spec.candidate_flags == 0 || (flags[size_t{stream} * capacity + row] & spec.candidate_flags) != 0;
  }
  bool forced(uint32_t stream, uint32_t row) const {
    return row + 1 == n_pages[stream] || row < spec.n_sink_pages ||
           (flags[size_t{stream} * capacity + row] & kPageKept) != 0;
  }
  // The scores that the list is sorted by: the group's, or the head's estimates.
  const float* ranking(uint32_t i) const {
    return (spec.agg == AggMode::kQHead ? score.data() : group_score.data()) + size_t{i} * capacity;
  }

  // The list by sorting the pages that compete and are not forced.
  std::vector<uint32_t> sorted_list(uint32_t i) const {
    const uint32_t stream = stream_of(i);
    const float* by = ranking(i);
    std::vector<uint32_t> rows, free;
    size_t places = spec.budget;
    for (uint32_t row = 0; row < n_pages[stream]; ++row) {
      if (competes(stream, row) && !forced(stream, row)) {
        free.push_back(row);
        continue;
      }
      rows.push_back(row);
      if (competes(stream, row) && places > 0) --places;
    }
    const auto number = [&](uint32_t row) { return std::isnan(by[row]) ? -INFINITY : by[row]; };
    std::stable_sort(free.begin(), free.end(), [&](uint32_t x, uint32_t y) { return number(x) > number(y); });
    rows.insert(rows.end(), free.begin(), free.begin() + static_cast<ptrdiff_t>(std::min(places, free.size())));
    std::sort(rows.begin(), rows.end());
    return rows;
  }

  SelectSpec spec;
  uint32_t capacity;
  float scale = 0.125f;
  std::vector<float> score, group_score;
  std::vector<uint32_t> flags, n_pages, select, n_select;
};

}  // namespace weir::test
