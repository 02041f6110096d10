// What page tables of two sessions have in common, layer by layer: decision by decision, or all decisions together
// (tests/device/test_pages.cpp).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "kv/kv_cache.h"
#include "tests/device/device_test.h"

namespace weir::test {

// Minimum fractions, per layer. Decision by decision: of the stamps that a chunk or step changed, those that it changed
// equally in both sessions, or not because of a near tie; of the scores, those that are within kScoreDistance.
// Together: of the pages that can leave one of the sessions, those that can leave both, per layer and in all layers.
struct Bounds {
  double stamps, scores, together, all_together;
};

// A weight's relative error is about the error of its logit, and keys are rounded to bf16: 1 % is common, 10 % rare.
constexpr double kScoreDistance = 0.1;  // relative to the larger one
constexpr double kSumRounding = 1e-6;   // of f32 sums, relative
constexpr double kPromptTie = 0.02;     // relative distance of two pages' prompt scores that rounding may exchange
constexpr double kStampTie = 0.01;      // of a page's weights on both sides of what is stamped

// One page of a table, as it was when the table was copied.
struct Page {
  uint32_t first_pos, len, flags, stamp;
  float score, prompt_score;
};
using Table = std::vector<Page>;
using Tables = std::vector<Table>;  // of all streams

inline Page page_of(const StreamView& s, uint32_t row) {
  return {s.first_pos[row], s.len[row],        s.flags[row],
          s.stamp[row],     s.last_score[row], s.prompt_score == nullptr ? 0.0f : s.prompt_score[row]};
}

inline Table copy_of(const StreamView& s) {
  Table table;
  for (uint32_t row = 0; row < s.n_pages; ++row) table.push_back(page_of(s, row));
  return table;
}

inline Tables copy_of(const KvCache& kv) {
  Tables tables;
  for (uint32_t i = 0; i < kv.shape().n_streams(); ++i) tables.push_back(copy_of(kv.stream(i)));
  return tables;
}

inline const Page* find(const Table& table, uint32_t first_pos) {
  const auto found = std::lower_bound(table.begin(), table.end(), first_pos,
                                      [](const Page& page, uint32_t pos) { return page.first_pos < pos; });
  return found == table.end() || found->first_pos != first_pos ? nullptr : &*found;
}

inline double part(uint64_t n, uint64_t of) { return of == 0 ? 1.0 : static_cast<double>(n) / static_cast<double>(of); }

// Says of both sessions what decided on a page: who reads it can tell a near tie from a defect. No bound asks for it.
class Notes {
 public:
  // Pages that only one of the sessions has in some stream, the first time that there are any. `a_before`, `b_before`:
  // the tables that the decision was made from, the same if both sessions decided from the same numbers.
  void tables(uint64_t look, const Tables& a_before, const Tables& b_before, const Tables& a, const Tables& b) {
    if (!tables_.empty()) return;
    for (uint32_t i = 0; i < a.size(); ++i) {
      only_in("left", look, i, a[i], b[i], a_before[i], b_before[i]);
      only_in("right", look, i, b[i], a[i], b_before[i], a_before[i]);
      if (tables_.empty() && a[i].size() == b[i].size()) {
        for (uint32_t row = 0; row < a[i].size(); ++row) flags(look, i, a[i][row], b[i][row]);
      }
    }
  }

  void stamp(uint64_t look, uint32_t stream, const Page& a, const Page& b, uint32_t before) {
    if (++n_stamps_ > kMost) return;
    add(stamps_, "stamp: look %llu stream %u page %u: %u became %u with weight %.6g, and %u with %.6g, apart %.2g",
        static_cast<unsigned long long>(look), stream, a.first_pos, before, a.stamp, double{a.score}, b.stamp,
        double{b.score}, apart(a.score, b.score));
  }

  // The largest of those that are not close.
  void score(uint64_t look, uint32_t stream, uint32_t first_pos, float a, float b, const char* which) {
    ++n_scores_;
    if (std::max(std::fabs(a), std::fabs(b)) <= largest_) return;
    largest_ = std::max(std::fabs(a), std::fabs(b));
    scores_.clear();
    add(scores_, "%s: look %llu stream %u page %u: %.6g and %.6g, apart %.2g", which,
        static_cast<unsigned long long>(look), stream, first_pos, double{a}, double{b}, apart(a, b));
  }

  void print() const {
    std::fputs((tables_ + stamps_ + scores_).c_str(), stdout);
    std::printf("  %llu stamps and %llu scores differ\n", static_cast<unsigned long long>(n_stamps_),
                static_cast<unsigned long long>(n_scores_));
  }

 private:
  static constexpr uint64_t kMost = 12;

  static double apart(double a, double b) {
    return a == b ? 0.0 : std::fabs(a - b) / std::max(std::fabs(a), std::fabs(b));
  }

  template <class... Values>
  static void add(std::string& to, const char* format, Values... values) {
    char line[512];
    std::snprintf(line, sizeof(line), format, values...);
    to.append("  ").append(line).append("\n");
  }

  void flags(uint64_t look, uint32_t i, const Page& a, const Page& b) {
    if (a.first_pos == b.first_pos && a.len == b.len && a.flags == b.flags) return;
    add(tables_, "flags: look %llu stream %u page %u: len %u flags %u, and page %u len %u flags %u",
        static_cast<unsigned long long>(look), i, a.first_pos, a.len, a.flags, b.first_pos, b.len, b.flags);
  }

  void only_in(const char* side, uint64_t look, uint32_t i, const Table& table, const Table& other, const Table& before,
               const Table& other_before) {
    for (const Page& page : table) {
      if (find(other, page.first_pos) != nullptr) continue;
      const Page none = {}, *was = find(before, page.first_pos), *other_was = find(other_before, page.first_pos);
      if (was == nullptr) was = &none;
      if (other_was == nullptr) other_was = &none;
      add(tables_,
          "only %s: look %llu stream %u (%zu and %zu pages) page %u flags %u: prompt score %.8g; before, here stamp %u "
          "score %.8g, there stamp %u score %.8g, apart %.2g",
          side, static_cast<unsigned long long>(look), i, table.size(), other.size(), page.first_pos, page.flags,
          double{page.prompt_score}, was->stamp, double{was->score}, other_was->stamp, double{other_was->score},
          apart(was->score, other_was->score));
    }
  }

  std::string tables_, stamps_, scores_;
  uint64_t n_stamps_ = 0, n_scores_ = 0;
  float largest_ = -1.0f;
};

// What two sessions have in common in one layer, over all comparisons.
struct LayerCounts {
  uint64_t tables = 0, equal_tables = 0;
  uint64_t stamps = 0, equal_stamps = 0;  // that changed in one of the sessions at least
  uint64_t scores = 0, close_scores = 0;
  uint64_t pages = 0, common = 0;  // together
  bool is_inside(const Bounds& b) const {
    return equal_tables == tables && part(equal_stamps, stamps) >= b.stamps && part(close_scores, scores) >= b.scores &&
           part(common, pages) >= b.together;
  }
};

// Compares the sessions decision by decision: what each chunk and step adds to stamps and scores, from equal ones on.
class StepByStep {
 public:
  // In decode steps, scores that add up are compared by what a step adds. `has_prompt_tie`: rounding may exchange a
  // page of a layer for another one whose prompt score is nearly the same; then the streams in which it did are
  // compared no more, nor are the scores of later layers, which see what the exchanged page changed. With ada it can be
  // a page of another head. `stamped`: the weight above which pages are stamped, 0 if something else decides.
  StepByStep(const KvCache& kv, bool scores_add_up, bool has_prompt_tie, float stamped)
      : layers(kv.shape().n_layers),
        before_(copy_of(kv)),
        exchanged_(kv.shape().n_streams()),
        last_compared_(kv.shape().n_layers),
        add_up_(scores_add_up),
        has_prompt_tie_(has_prompt_tie),
        stamped_(stamped) {}

  // Compares; then the tables of `kv` get the stamps and scores of `other` in all streams that hold the same pages.
  void look(const KvCache& kv, const Tables& other, bool is_prompt) {
    assert_int_equal(other.size(), kv.shape().n_streams());
    notes.tables(n_looks_, before_, before_, copy_of(kv), other);
    for (uint32_t layer = 0; is_prompt && has_prompt_tie_ && layer < layers.size(); ++layer)
      find_prompt_tie(copy_of(kv), other, layer * kv.shape().n_kv_heads, kv.shape().n_kv_heads);
    for (uint32_t i = 0; i < other.size(); ++i) {
      if (exchanged_[i]) continue;
      const StreamView s = kv.stream(i);
      LayerCounts& counts = layers[i / kv.shape().n_kv_heads];
      ++counts.tables;
      if (!are_equal(s, other[i], before_[i])) continue;
      ++counts.equal_tables;
      for (uint32_t row = 0; row < s.n_pages; ++row) {
        const Page& page = other[i][row];
        const Page* before = find(before_[i], page.first_pos);
        if ((page.flags & kPageStays) == 0) {
          if (!stamp_is_by_position(other[i], row, before)) compare_stamps(i, page_of(s, row), page, *before, counts);
          if (i / kv.shape().n_kv_heads <= last_compared_)
            compare_scores(i, page_of(s, row), page, before, is_prompt, counts);
        }
        s.stamp[row] = page.stamp;
        s.last_score[row] = page.score;
        if (s.prompt_score != nullptr) s.prompt_score[row] = page.prompt_score;
      }
    }
    before_ = other;
    ++n_looks_;
  }

  uint32_t n_exchanged() const { return static_cast<uint32_t>(std::count(exchanged_.begin(), exchanged_.end(), true)); }

  std::vector<LayerCounts> layers;
  Notes notes;

 private:
  // One page of the layer's streams for one other.
  void find_prompt_tie(const Tables& a, const Tables& b, uint32_t first, uint32_t n) {
    std::vector<const Page*> only[2];
    std::vector<uint32_t> streams;
    for (uint32_t i = first; i < first + n; ++i) {
      for (int side = 0; side < 2; ++side) {
        const Table &table = side == 0 ? a[i] : b[i], &with = side == 0 ? b[i] : a[i];
        for (const Page& page : table) {
          if (find(with, page.first_pos) != nullptr) continue;
          only[side].push_back(&page);
          streams.push_back(i);
        }
      }
    }
    if (only[0].size() != 1 || only[1].size() != 1) return;
    const double x = std::fabs(only[0][0]->prompt_score), y = std::fabs(only[1][0]->prompt_score);
    if (std::min(x, y) < (1.0 - kPromptTie) * std::max(x, y) || x == 0.0) return;
    for (uint32_t i : streams) exchanged_[i] = true;
    last_compared_ = std::min(last_compared_, first / n);
  }

  // The stamps of new pages and of the last one come from positions alone. `before`: the page as it was, null if new.
  static bool stamp_is_by_position(const Table& table, uint32_t row, const Page* before) {
    return row + 1 == table.size() || before == nullptr;
  }

  // The same pages with the same flags, and the same stamps where they come from positions.
  static bool are_equal(const StreamView& s, const Table& other, const Table& before) {
    if (s.n_pages != other.size()) return false;
    for (uint32_t row = 0; row < s.n_pages; ++row) {
      const Page a = page_of(s, row), &b = other[row];
      if (a.first_pos != b.first_pos || a.len != b.len || a.flags != b.flags) return false;
      if (stamp_is_by_position(other, row, find(before, b.first_pos)) && a.stamp != b.stamp) return false;
    }
    return true;
  }

  static bool are_close(float x, float y, double from) {
    const double a = double{x} - from, b = double{y} - from;
    return std::isfinite(a) && std::isfinite(b) &&
           std::fabs(a - b) <= kScoreDistance * std::max(std::fabs(a), std::fabs(b)) + kSumRounding * std::fabs(from);
  }

  // What is stamped lies between the two weights, which are nearly the same.
  bool is_stamp_tie(float x, float y) const {
    const float low = std::min(x, y), high = std::max(x, y);
    return stamped_ > 0.0f && low <= stamped_ && stamped_ < high && high - low <= static_cast<float>(kStampTie) * high;
  }

  void compare_stamps(uint32_t stream, const Page& a, const Page& b, const Page& before, LayerCounts& counts) {
    if (a.stamp == before.stamp && b.stamp == before.stamp) return;
    ++counts.stamps;
    counts.equal_stamps += a.stamp == b.stamp || is_stamp_tie(a.score, b.score) ? 1 : 0;
    if (a.stamp != b.stamp) notes.stamp(n_looks_, stream, a, b, before.stamp);
  }

  // The scores of new pages begin at 0.
  void compare_scores(uint32_t stream, const Page& a, const Page& b, const Page* before, bool is_prompt,
                      LayerCounts& counts) {
    const bool adds = add_up_ && !is_prompt && before != nullptr;
    const bool close = are_close(a.score, b.score, adds ? double{before->score} : 0.0);
    ++counts.scores;
    counts.close_scores += close ? 1 : 0;
    if (!close) notes.score(n_looks_, stream, a.first_pos, a.score, b.score, "score");
    const float old = before == nullptr ? 0.0f : before->prompt_score;
    if (a.prompt_score == old && b.prompt_score == old) return;
    const bool prompt_close = are_close(a.prompt_score, b.prompt_score, 0.0);
    ++counts.scores;
    counts.close_scores += prompt_close ? 1 : 0;
    if (!prompt_close) notes.score(n_looks_, stream, a.first_pos, a.prompt_score, b.prompt_score, "prompt score");
  }

  Tables before_;
  std::vector<bool> exchanged_;  // streams
  uint32_t last_compared_;       // layer whose scores are
  uint64_t n_looks_ = 0;
  bool add_up_, has_prompt_tie_;
  float stamped_;
};

// Counts the pages that can leave, those of one table and those of both.
inline void compare_pages(const Table& a, const Table& b, LayerCounts& counts) {
  const auto can_leave = [](const Table& table, const Page& page) {
    return (page.flags & kPageStays) == 0 && &page != &table.back();
  };
  uint64_t n = 0, common = 0;
  for (const Page& page : a) {
    if (!can_leave(a, page)) continue;
    const Page* other = find(b, page.first_pos);
    ++n;
    common += other != nullptr && can_leave(b, *other) ? 1 : 0;
  }
  for (const Page& page : b) n += can_leave(b, page) ? 1 : 0;
  counts.pages += n - common;
  counts.common += common;
}

// The first layer that is outside the bounds; the number of layers if none is.
inline uint32_t first_outside(const std::vector<LayerCounts>& layers, const Bounds& bounds) {
  const auto outside = [&](const LayerCounts& c) { return !c.is_inside(bounds); };
  return static_cast<uint32_t>(std::find_if(layers.begin(), layers.end(), outside) - layers.begin());
}

inline LayerCounts sum_of(const std::vector<LayerCounts>& layers) {
  LayerCounts all;
  for (const LayerCounts& c : layers) {
    all.tables += c.tables, all.equal_tables += c.equal_tables;
    all.stamps += c.stamps, all.equal_stamps += c.equal_stamps;
    all.scores += c.scores, all.close_scores += c.close_scores;
    all.pages += c.pages, all.common += c.common;
  }
  return all;
}

// What is outside the bounds, for report(); "" if nothing is.
inline const char* outside(const std::vector<LayerCounts>& layers, const Bounds& bounds) {
  const LayerCounts all = sum_of(layers);
  if (first_outside(layers, bounds) != layers.size()) return "   A LAYER IS OUTSIDE";
  return part(all.common, all.pages) < bounds.all_together ? "   ALL LAYERS ARE OUTSIDE" : "";
}

inline bool are_inside(const std::vector<LayerCounts>& layers, const Bounds& bounds) {
  return *outside(layers, bounds) == '\0';
}

}  // namespace weir::test
