// See history_lists.h. A list holds the entries above a floor. Between two cuts it only grows, by what a step attended:
// all else decays alike and stays below the floor. So a step costs what it attends and what is listed, however long the
// tables are.
// Paper: LFPS, arXiv:2506.15704; docs/algorithms.md, "LFPS".
#include "cpu/history_lists.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/history_lists.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Raises the floor of a table whose list became too long so that its `target` greatest entries stay, or fewer if there
// are equal ones. Entries above a floor are positive, so that their bits have their order. `keys`: room for the list.
void cut_list(HistoryTable& t, const float* entries, uint32_t* list, uint32_t target, uint32_t* keys) {
  const hn::ScalableTag<uint32_t> du;
  const hn::RebindToSigned<decltype(du)> di;
  const hn::RebindToFloat<decltype(du)> df;
  const size_t lanes = hn::Lanes(du), n = t.n_list;
  for (size_t i = 0; i < n; i += lanes) {
    const auto valid = hn::FirstN(du, n - i);
    const auto at = hn::IfThenElseZero(valid, hn::LoadU(du, list + i));
    const auto entry = hn::BitCast(du, hn::GatherIndex(df, entries, hn::BitCast(di, at)));
    hn::StoreU(hn::IfThenElseZero(valid, entry), du, keys + i);
  }
  uint32_t floor = 0;  // the greatest that target + 1 entries reach
  for (uint32_t bit = 0x40000000u; bit != 0; bit >>= 1) {
    const auto bound = hn::Set(du, floor | bit);
    size_t count = 0;
    for (size_t i = 0; i < n; i += lanes) count += hn::CountTrue(du, hn::Not(hn::Lt(hn::LoadU(du, keys + i), bound)));
    if (count > target) floor |= bit;
  }
  uint32_t left = 0;
  for (size_t i = 0; i < n; i += lanes) {
    const auto stays = hn::Gt(hn::LoadU(du, keys + i), hn::Set(du, floor));
    left += static_cast<uint32_t>(hn::CompressStore(hn::LoadU(du, list + i), stays, du, list + left));
  }
  t.n_list = left;
  t.floor = std::bit_cast<float>(floor);
}

}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {
namespace {

HWY_EXPORT(cut_list);

// Candidates whose tables' lines are fetched together.
constexpr uint32_t kNeighbourBatch = 16;

// Adds a token to a set; false: it was there.
bool add_to(uint64_t* set, uint32_t token) {
  uint64_t& word = set[token / kBits];
  const uint64_t bit = uint64_t{1} << (token % kBits);
  const bool is_new = (word & bit) == 0;
  word |= bit;
  return is_new;
}
bool has(const uint64_t* set, uint32_t token) { return (set[token / kBits] >> (token % kBits) & 1) != 0; }

// Calls f(token) for the members of a set, ascending.
template <class F>
void for_members(const uint64_t* set, uint32_t n, const F& f) {
  for (uint32_t word = 0; word < (n + kBits - 1) / kBits; ++word) {
    for (uint64_t bits = set[word]; bits != 0; bits &= bits - 1)
      f(word * kBits + static_cast<uint32_t>(std::countr_zero(bits)));
  }
}

struct HeadTables {
  HeadTables(const HistoryView& view, const HistoryRules& rules, uint32_t head, uint32_t n_tokens) : n(n_tokens) {
    const HeadHistory& h = view.heads[head];
    for (uint32_t kind = 0; kind < kHistoryKinds; ++kind) {
      entries[kind] = view.entries_of(head, kind);
      list[kind] = view.list_of(head, kind);
      n_list[kind] = h.table[kind].n_list;
      mean[kind] = h.table[kind].sum / n;
      least[kind] = rules.by_threshold ? threshold_of(rules, h, kind, n) : h.table[kind].floor;
      is_listed[kind] = h.table[kind].floor <= least[kind];
    }
  }
  bool above_mean(uint32_t token) const {
    return entries[kByPosition][token] > mean[kByPosition] || entries[kByDistance][n - 1 - token] > mean[kByDistance];
  }
  uint32_t n;
  const float* entries[kHistoryKinds];
  const uint32_t* list[kHistoryKinds];
  uint32_t n_list[kHistoryKinds];
  double mean[kHistoryKinds];
  float least[kHistoryKinds];
  bool is_listed[kHistoryKinds];  // not where the threshold fell below the floor since the list was made
};

// Sets `own` to the tokens that a head's tables list.
void mark_own(const HeadTables& t, bool by_threshold, uint64_t* own) {
  std::fill_n(own, t.n / kBits + 1, uint64_t{0});
  for (uint32_t kind = 0; kind < kHistoryKinds; ++kind) {
    for (uint32_t i = 0; i < (t.is_listed[kind] ? t.n_list[kind] : t.n); ++i) {
      const uint32_t index = t.is_listed[kind] ? t.list[kind][i] : i;
      if (index >= t.n || (by_threshold && !(t.entries[kind][index] > t.least[kind]))) continue;
      add_to(own, kind == kByPosition ? index : t.n - 1 - index);
    }
  }
}

void mark_forced(const AttnHistoryArgs& a, uint32_t kv_head, uint32_t n, uint64_t* group) {
  for (uint32_t i = 0; i < std::min(a.rules.n_recent, n); ++i) add_to(group, n - 1 - i);
  const uint32_t* flags = a.flags + size_t{kv_head} * a.attn.kv.capacity;
  const uint32_t n_sink = a.attn.pos + 1 - n;
  for (uint32_t row = 0; row < a.attn.kv.n_pages[kv_head]; ++row) {
    if ((flags[row] & kPageKept) == 0) continue;
    const uint32_t end = std::min((row + 1) * kPageTokens, a.attn.pos + 1);
    for (uint32_t pos = std::max(row * kPageTokens, n_sink); pos < end; ++pos) add_to(group, pos - n_sink);
  }
}

void filter_list(HistoryTable& t, const float* entries, uint32_t* list) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < t.n_list; ++i) {
    if (entries[list[i]] > t.floor) list[n++] = list[i];
  }
  t.n_list = n;
}

// The floor for a list of `target` entries of a whole table.
void raise_floor(HistoryTable& t, const float* entries, uint32_t n, uint32_t target, uint32_t* keys) {
  uint32_t above = 0;
  for (uint32_t i = 0; i < n; ++i) {
    if (entries[i] > t.floor) keys[above++] = std::bit_cast<uint32_t>(entries[i]);
  }
  if (above <= longest_list(target)) return;
  std::nth_element(keys, keys + target, keys + above, std::greater<>());
  t.floor = std::bit_cast<float>(keys[target]);
}

// Adds neighbours of a head's own candidates to a set of `count`, until it is full; returns how many there are.
uint32_t add_neighbours(const AttnHistoryArgs& a, const HeadTables& t, const uint64_t* own, uint32_t count,
                        uint64_t* group) {
  const uint32_t words = t.n / kBits + 1, first = first_word(t.n);
  uint32_t tokens[kNeighbourBatch + kBits], n_tokens = 0;
  for (uint32_t i = 0; i < words; ++i) {
    const uint32_t word = (first + i) % words;
    for (uint64_t bits = own[word]; bits != 0; bits &= bits - 1) {
      const uint32_t token = word * kBits + static_cast<uint32_t>(std::countr_zero(bits));
      hwy::Prefetch(t.entries[kByPosition] + token);
      hwy::Prefetch(t.entries[kByDistance] + (t.n - 1 - token));
      tokens[n_tokens++] = token;
    }
    if (n_tokens < kNeighbourBatch && i + 1 < words) continue;
    for (uint32_t k = 0; k < n_tokens; ++k) {
      for (const int32_t step : kHistoryNeighbours) {
        const uint32_t next = tokens[k] + static_cast<uint32_t>(step);  // wraps below 0 to more than n
        if (next >= t.n || has(group, next) || !t.above_mean(next)) continue;
        add_to(group, next);
        if (++count == a.size.candidates) return count;
      }
    }
    n_tokens = 0;
  }
  return count;
}

}  // namespace

uint32_t count_members(const uint64_t* set, uint32_t words) {
  uint32_t count = 0;
  for (uint32_t word = 0; word < words; ++word) count += static_cast<uint32_t>(std::popcount(set[word]));
  return count;
}

float mark_candidates(const AttnHistoryArgs& a, uint32_t kv_head, uint32_t n, const bool* looks,
                      const CandidateScratch& s) {
  float fill = a.history.fill[kv_head];
  const uint32_t group = a.attn.n_heads / a.attn.kv.n_kv_heads, words = n / kBits + 1;
  if (a.size.candidates >= n) {
    std::fill_n(s.group, words, UINT64_MAX);
    s.group[words - 1] = (uint64_t{1} << (n % kBits)) - 1;
    return fill;
  }
  std::fill_n(s.group, words, uint64_t{0});
  for (uint32_t g = 0; g < group; ++g) {
    if (!looks[g]) continue;
    uint64_t* own = s.own + g * s.words;
    mark_own(HeadTables(a.history, a.rules, kv_head * group + g, n), a.rules.by_threshold, own);
    for (uint32_t word = 0; word < words; ++word) s.group[word] |= own[word];
  }
  uint32_t count = count_members(s.group, words);
  if (!a.rules.by_threshold) fill = next_fill(fill, count, a.size.candidates, group);
  // Another head, and another part of the history, is first in each step.
  for (uint32_t i = 0; i < group && count < a.size.candidates; ++i) {
    const uint32_t g = (n + i) % group;
    if (looks[g])
      count = add_neighbours(a, HeadTables(a.history, a.rules, kv_head * group + g, n), s.own + g * s.words, count,
                             s.group);
  }
  mark_forced(a, kv_head, n, s.group);
  return fill;
}

uint32_t list_members(const uint64_t* set, uint32_t n, uint32_t* tokens) {
  uint32_t count = 0;
  for_members(set, n, [&](uint32_t token) { tokens[count++] = token; });
  return count;
}

void trim_lists(const HistoryView& view, uint32_t head, uint32_t n, const HistoryRules& rules, double by_head,
                uint32_t* keys) {
  const HeadHistory before = view.heads[head];
  for (uint32_t kind = 0; kind < kHistoryKinds; ++kind) {
    HistoryTable& t = view.heads[head].table[kind];
    const float* entries = view.entries_of(head, kind);
    uint32_t* list = view.list_of(head, kind);
    if (!rules.by_threshold) {
      const uint32_t target = list_target(rules, before, kind, n, by_head);
      if (t.n_list == kUnlisted) {
        raise_floor(t, entries, n, target, keys);
        (void)view.list_above(head, kind, n);  // list_room has seen to it that they fit
      }
      if (t.n_list <= longest_list(target)) continue;
      HWY_DYNAMIC_DISPATCH(cut_list)(t, entries, list, target, keys);
      continue;
    }
    const float threshold = threshold_of(rules, before, kind, n);
    if (t.floor <= threshold && t.floor >= kCutThreshold * threshold) continue;
    const bool more = t.floor > threshold;
    t.floor = kListedThreshold * threshold;
    more ? (void)view.list_above(head, kind, n) : filter_list(t, entries, list);
  }
}

void make_lists(const HistoryView& view, uint32_t head, uint32_t n, const HistoryRules& rules, double by_head,
                uint32_t* keys) {
  const HeadHistory before = view.heads[head];
  for (uint32_t kind = 0; kind < kHistoryKinds; ++kind) {
    HistoryTable& t = view.heads[head].table[kind];
    const float* entries = view.entries_of(head, kind);
    if (rules.by_threshold) {
      t.floor = kListedThreshold * threshold_of(rules, before, kind, n);
    } else {
      raise_floor(t, entries, n, list_target(rules, before, kind, n, by_head), keys);
    }
    (void)view.list_above(head, kind, n);
  }
}

void fit_lists(const HistoryBeginArgs& a, uint32_t kv_head, uint32_t n, const CandidateScratch& s) {
  const uint32_t group = a.n_heads / a.kv.n_kv_heads, words = n / kBits + 1;
  float& fill = a.history.fill[kv_head];
  fill = max_fill(group);
  while (!a.rules.by_threshold && fill > min_fill()) {
    std::fill_n(s.group, words, uint64_t{0});
    for (uint32_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      mark_own(HeadTables(a.history, a.rules, head, n), false, s.own);
      for (uint32_t word = 0; word < words; ++word) s.group[word] |= s.own[word];
    }
    const auto count = static_cast<float>(count_members(s.group, words));
    if (count <= kListedHigh * static_cast<float>(a.candidates)) return;
    fill = std::max(fill / kFitStep, min_fill());
    for (uint32_t head = kv_head * group; head < (kv_head + 1) * group; ++head)
      trim_lists(a.history, head, n, a.rules, listed_by_head(fill, a.candidates, group), s.keys);
  }
}

void rescale_lists(const HistoryView& view, uint32_t head, uint32_t n) {
  rescale(view, head, n);
  for (uint32_t kind = 0; kind < kHistoryKinds; ++kind) {
    HistoryTable& t = view.heads[head].table[kind];
    if (t.n_list != kUnlisted) filter_list(t, view.entries_of(head, kind), view.list_of(head, kind));
  }
}

}  // namespace weir::cpu
#endif  // HWY_ONCE
