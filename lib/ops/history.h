// What attention that learns from its past (docs/algorithms.md, "LFPS") knows of a layer, and the rules that the
// reference and the fast operation share. Per query head there are two tables of decayed attention weights: by position
// and by distance to the query. Tokens are counted from the first one that is no sink.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace weir {

enum HistoryKind : uint32_t { kByPosition, kByDistance, kHistoryKinds };

// One table of a query head. A weight is an entry times HeadHistory::scale, so that all decay at once.
struct HistoryTable {
  double sum = 0.0, sum2 = 0.0, sum4 = 0.0;  // of the entries, their squares and their fourth powers
  float floor = 0.0f;                        // entries above it are listed
  uint32_t n_list = 0;
};

struct HeadHistory {
  double scale = 1.0;
  float spread = 0.0f;  // variance of the logits over the prompt's tokens, by the square of the query's length
  uint32_t reserved = 0;
  HistoryTable table[kHistoryKinds];
};

// The tables of a layer.
struct HistoryView {
  float* entries = nullptr;      // [n_heads, kHistoryKinds, capacity] not negative, n_known of each table
  uint32_t* lists = nullptr;     // [n_heads, kHistoryKinds, list_capacity] indices of the entries above the floor
  HeadHistory* heads = nullptr;  // [n_heads]
  double* sums = nullptr;        // [n_kv_heads, 2, head_dim] of the keys and of the values, without those of sinks
  uint32_t* n_summed = nullptr;  // [n_kv_heads] tokens that are in them, counted from position 0
  uint32_t* n_known = nullptr;   // [n_kv_heads] entries of its heads' tables
  float* fill = nullptr;         // [n_kv_heads] how many candidates its heads list together, by their number; list_fill
  uint32_t capacity = 0, list_capacity = 0;

  float* entries_of(uint32_t head, uint32_t kind) const {
    return entries + (size_t{head} * kHistoryKinds + kind) * capacity;
  }
  uint32_t* list_of(uint32_t head, uint32_t kind) const {
    return lists + (size_t{head} * kHistoryKinds + kind) * list_capacity;
  }
  // Makes a table's list of the `n` entries that it knows. False: it has no room for them.
  bool list_above(uint32_t head, uint32_t kind, uint32_t n) const;
};

// Floats of the widest vector: lists and scratch have room for a whole one behind their end.
inline constexpr uint32_t kVectorPad = 16;

inline bool HistoryView::list_above(uint32_t head, uint32_t kind, uint32_t n) const {
  HistoryTable& t = heads[head].table[kind];
  const float* entries_here = entries_of(head, kind);
  uint32_t* list = list_of(head, kind);
  t.n_list = 0;
  for (uint32_t i = 0; i < n; ++i) {
    if (!(entries_here[i] > t.floor)) continue;
    if (t.n_list + kVectorPad >= list_capacity) return false;
    list[t.n_list++] = i;
  }
  return true;
}

struct HistoryRules {
  uint32_t n_sink = 4;    // first tokens, always attended and in no table
  uint32_t n_recent = 5;  // last tokens, always candidates
  uint32_t n_rows = 20;   // last rows of a prompt that make new tables; fewer change the old ones by their part
  float gamma = 0.95f;    // decay of a step
  float eta = 0.95f;      // share of the sinks above which a head looks at nothing else; 1: never
  float lambda = 0.2f;    // with by_threshold: height of the thresholds
  // Part of a head's candidates that comes from the table by position, the rest from that by distance; 0: more from the
  // table that stands out more.
  float position_share = 0.8f;
  bool by_threshold = false;  // candidates are the entries above a threshold, not the highest ones of a number
};

// What a step may cost; each counts tokens of one KV head.
struct HistorySize {
  uint32_t candidates = 0;  // keys that are read, besides sinks, recent and pinned ones; as many as tokens: all
  uint32_t top = 0;         // candidates that a head attends
};

// Candidates that were found before there was a query. Only those of streams that had no more than `capacity` are kept;
// a step that has other needs finds its own.
struct HistoryAhead {
  uint32_t* tokens = nullptr;  // [n_kv_heads, capacity + kVectorPad] ascending; null: nothing is found ahead
  uint32_t* n = nullptr;       // [n_kv_heads] how many, 0: none
  float* fill = nullptr;       // [n_kv_heads] what HistoryView::fill becomes
  uint32_t capacity = 0;

  uint32_t* tokens_of(uint32_t kv_head) const { return tokens + size_t{kv_head} * (size_t{capacity} + kVectorPad); }
};

// A weight this small may vanish: entries are brought back to a scale of 1 before.
inline constexpr double kMinHistoryScale = 1e-6;
// Sum of a table after a prompt, 1 / (2 * (1 - gamma)): what it tends to while nothing is bypassed.
inline double steady_sum(const HistoryRules& rules) { return 0.5 / std::max(1e-3, 1.0 - double{rules.gamma}); }

// After a prompt of n_rows rows: what the entries of a head's table are multiplied with before the rows' weights are
// added, 0 if these are all. What is left and what is new are a steady_sum together.
inline double left_of(const HistoryRules& rules, const HeadHistory& head, uint32_t kind, uint32_t n_rows) {
  const double was = std::min(head.table[kByPosition].sum, head.table[kByDistance].sum);
  if (n_rows >= rules.n_rows || !(was > 0.0)) return 0.0;
  return (1.0 - static_cast<double>(n_rows) / rules.n_rows) * steady_sum(rules) / head.table[kind].sum;
}
// The part of a steady_sum that the rows' weights have then.
inline double part_of_rows(const HistoryRules& rules, double left, uint32_t n_rows) {
  return left > 0.0 ? static_cast<double>(n_rows) / rules.n_rows : 1.0;
}

// Neighbours of a candidate that may become candidates. A step begins with the candidates from a token on that is far
// from the last step's, so that all of the history has its turn.
inline constexpr int32_t kHistoryNeighbours[] = {-1, 1, 2};
inline constexpr uint32_t kNeighbourWord = 64;  // tokens
constexpr uint32_t first_word(uint32_t n) { return n * 2654435761u % (n / kNeighbourWord + 1); }

// Uncentred kurtosis: how much of a table is in few entries. n > 0.
inline double kurtosis_of(const HistoryTable& t, uint32_t n) {
  return t.sum2 > 0.0 ? t.sum4 * n / (t.sum2 * t.sum2) : 1.0;
}

// Part of a head's candidates that come from a table.
inline double share_of(const HistoryRules& rules, const HeadHistory& head, uint32_t kind, uint32_t n) {
  if (rules.position_share > 0.0f) return kind == kByPosition ? rules.position_share : 1.0 - rules.position_share;
  const double own = kurtosis_of(head.table[kind], n), other = kurtosis_of(head.table[1 - kind], n);
  return std::clamp(own / (own + other), 0.1, 0.9);
}

// The heads of a group list many of the same tokens. So each lists more than its part of the candidates, by a factor
// that keeps the set of all that is listed between these shares of the candidates; the rest is for neighbours.
inline constexpr float kListedLow = 0.88f, kListedHigh = 0.95f, kFillStep = 1.03f, kFitStep = 1.1f;
constexpr float min_fill() { return kListedHigh; }
constexpr float max_fill(uint32_t group) { return kListedHigh * static_cast<float>(group); }
// The factor after a step in which the heads together listed n_listed tokens.
inline float next_fill(float fill, uint32_t n_listed, uint32_t candidates, uint32_t group) {
  const float share = static_cast<float>(n_listed) / static_cast<float>(candidates);
  if (share > kListedHigh) fill /= kFillStep;
  if (share < kListedLow) fill *= kFillStep;
  return std::clamp(fill, min_fill(), max_fill(group));
}
// Candidates that each head of a group lists.
inline double listed_by_head(float fill, uint32_t candidates, uint32_t group) {
  return double{fill} * candidates / group;
}

// Entries that a table lists after its list was cut.
inline uint32_t list_target(const HistoryRules& rules, const HeadHistory& head, uint32_t kind, uint32_t n,
                            double by_head) {
  return std::max(1u, static_cast<uint32_t>(by_head * share_of(rules, head, kind, n)));
}
// A list is cut when it is longer.
constexpr uint32_t longest_list(uint32_t target) { return target + target / 4 + 4; }
// The longest that a list can be, which is just before it is cut.
constexpr uint64_t list_room(const HistoryRules& rules, const HistorySize& most, uint64_t tokens) {
  if (rules.by_threshold) return tokens + kVectorPad;
  return std::min<uint64_t>(tokens, uint64_t{longest_list(most.candidates)} + most.top) + kVectorPad;
}

// With by_threshold: entries above this are candidates. None are where the table has no part.
inline float threshold_of(const HistoryRules& rules, const HeadHistory& head, uint32_t kind, uint32_t n) {
  const HistoryTable& t = head.table[kind];
  const double share = share_of(rules, head, kind, n);
  if (share <= 0.0) return std::numeric_limits<float>::infinity();
  const double mean = t.sum / n, variance = std::max(0.0, t.sum2 / n - mean * mean);
  const double height = rules.lambda * std::sqrt(variance) / (2.0 * share);
  return static_cast<float>(std::max(0.0, mean + height));
}
// What a list holds then, so that it seldom has to be made anew.
inline constexpr float kListedThreshold = 0.75f, kCutThreshold = 0.5f;

// Share of the sinks in a head's attention, estimated. The arguments are logarithms of sums of exp(logit): over the
// sinks, over all other tokens (estimated), and over the most recent ones.
inline double sink_share(double sinks, double others, double recent) {
  return 1.0 / (1.0 + std::exp(std::max(others, recent) - sinks));
}

// What a head attends teaches nothing when all of it together, next to the highest logit of the sinks, is below this:
// in f32 the parts of such a sum have few bits or none, and a part of it times what it lacks to 1 overflows.
inline constexpr float kMinLearned = 1e-30f;

// Adds `weight` to an entry whose table has just decayed; returns whether it belongs to the list from now on.
inline bool add_weight(HistoryTable& t, float& entry, double weight) {
  const float before = entry;
  entry = static_cast<float>(before + weight);
  const double old2 = double{before} * before, new2 = double{entry} * entry;
  t.sum += double{entry} - before;
  t.sum2 += new2 - old2;
  t.sum4 += new2 * new2 - old2 * old2;
  return before <= t.floor && entry > t.floor;
}

// Sums of a table that was written as a whole.
inline void sum_table(HistoryTable& t, const float* entries, uint32_t n) {
  t.sum = t.sum2 = t.sum4 = 0.0;
  for (uint32_t i = 0; i < n; ++i) {
    const double x = entries[i];
    t.sum += x;
    t.sum2 += x * x;
    t.sum4 += x * x * x * x;
  }
}

// Brings a head's entries back to a scale of 1.
inline void rescale(const HistoryView& view, uint32_t head, uint32_t n) {
  HeadHistory& h = view.heads[head];
  for (uint32_t kind = 0; kind < kHistoryKinds; ++kind) {
    float* entries = view.entries_of(head, kind);
    for (uint32_t i = 0; i < n; ++i) entries[i] = static_cast<float>(entries[i] * h.scale);
    h.table[kind].floor = static_cast<float>(h.table[kind].floor * h.scale);
    sum_table(h.table[kind], entries, n);
  }
  h.scale = 1.0;
}

}  // namespace weir
