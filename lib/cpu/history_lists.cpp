// See history_lists.h. A list holds the entries above a floor. Between two cuts it only grows, by what a step attended:
// all else decays alike and stays below the floor. So a step costs what it attends and what is listed, however long the
// tables are.
// Paper: LFPS, arXiv:2506.15704; docs/algorithms.md, "LFPS".
#include "cpu/history_lists.h"

#include <algorithm>
#include <bit>
#include <functional>

namespace weir::cpu {
namespace {

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
  HeadTables(const AttnHistoryArgs& a, uint32_t head, uint32_t n_tokens) : n(n_tokens) {
    const HeadHistory& h = a.history.heads[head];
    for (uint32_t kind = 0; kind < kHistoryKinds; ++kind) {
      entries[kind] = a.history.entries_of(head, kind);
      list[kind] = a.history.list_of(head, kind);
      n_list[kind] = h.table[kind].n_list;
      mean[kind] = h.table[kind].sum / n;
      least[kind] = a.rules.by_threshold ? threshold_of(a.rules, h, kind, n) : h.table[kind].floor;
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
};

// Sets `own` to the tokens that a head's tables list.
void mark_own(const HeadTables& t, uint64_t* own) {
  std::fill_n(own, t.n / kBits + 1, uint64_t{0});
  for (uint32_t kind = 0; kind < kHistoryKinds; ++kind) {
    for (uint32_t i = 0; i < t.n_list[kind]; ++i) {
      const uint32_t index = t.list[kind][i];
      if (index < t.n && t.entries[kind][index] > t.least[kind])
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

// Keeps the `target` greatest of a list that became too long.
void cut_list(HistoryTable& t, const float* entries, uint32_t* list, uint32_t target, float* values) {
  for (uint32_t i = 0; i < t.n_list; ++i) values[i] = entries[list[i]];
  std::nth_element(values, values + target, values + t.n_list, std::greater<>());
  t.floor = values[target];
}

void filter_list(HistoryTable& t, const float* entries, uint32_t* list) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < t.n_list; ++i) {
    if (entries[list[i]] > t.floor) list[n++] = list[i];
  }
  t.n_list = n;
}

void list_all(HistoryTable& t, const float* entries, uint32_t n, uint32_t* list) {
  t.n_list = 0;
  for (uint32_t i = 0; i < n; ++i) {
    if (entries[i] > t.floor) list[t.n_list++] = i;
  }
}

}  // namespace

void mark_candidates(const AttnHistoryArgs& a, uint32_t kv_head, uint32_t n, const bool* looks,
                     const CandidateScratch& s) {
  const uint32_t group = a.attn.n_heads / a.attn.kv.n_kv_heads, words = n / kBits + 1;
  if (a.size.candidates >= n) {
    std::fill_n(s.group, words, UINT64_MAX);
    s.group[words - 1] = (uint64_t{1} << (n % kBits)) - 1;
    return;
  }
  std::fill_n(s.group, words, uint64_t{0});
  for (uint32_t g = 0; g < group; ++g) {
    if (!looks[g]) continue;
    mark_own(HeadTables(a, kv_head * group + g, n), s.own);
    for (uint32_t word = 0; word < words; ++word) s.group[word] |= s.own[word];
  }
  uint32_t count = 0;
  for (uint32_t word = 0; word < words; ++word) count += static_cast<uint32_t>(std::popcount(s.group[word]));
  for (uint32_t g = 0; g < group && count < a.size.candidates; ++g) {
    if (!looks[g]) continue;
    const HeadTables tables(a, kv_head * group + g, n);
    mark_own(tables, s.own);
    for_members(s.own, n, [&](uint32_t token) {
      for (const int32_t step : kHistoryNeighbours) {
        const uint32_t next = token + static_cast<uint32_t>(step);  // wraps below 0 to more than n
        if (next >= n || count >= a.size.candidates || has(s.group, next)) continue;
        if (tables.above_mean(next)) count += add_to(s.group, next) ? 1 : 0;
      }
    });
  }
  mark_forced(a, kv_head, n, s.group);
}

uint32_t list_members(const uint64_t* set, uint32_t n, uint32_t* tokens) {
  uint32_t count = 0;
  for_members(set, n, [&](uint32_t token) { tokens[count++] = token; });
  return count;
}

void trim_lists(const HistoryView& view, uint32_t head, uint32_t n, const HistoryRules& rules, uint32_t candidates,
                uint32_t group, float* values) {
  const HeadHistory before = view.heads[head];
  for (uint32_t kind = 0; kind < kHistoryKinds; ++kind) {
    HistoryTable& t = view.heads[head].table[kind];
    const float* entries = view.entries_of(head, kind);
    uint32_t* list = view.list_of(head, kind);
    if (!rules.by_threshold) {
      const uint32_t target = list_target(before, kind, n, candidates, group);
      if (t.n_list <= longest_list(target)) continue;
      cut_list(t, entries, list, target, values);
      filter_list(t, entries, list);
      continue;
    }
    const float threshold = threshold_of(rules, before, kind, n);
    if (t.floor <= threshold && t.floor >= kCutThreshold * threshold) continue;
    const bool more = t.floor > threshold;
    t.floor = kListedThreshold * threshold;
    more ? list_all(t, entries, n, list) : filter_list(t, entries, list);
  }
}

void make_lists(const HistoryView& view, uint32_t head, uint32_t n, const HistoryRules& rules, uint32_t candidates,
                uint32_t group, float* values) {
  const HeadHistory before = view.heads[head];
  for (uint32_t kind = 0; kind < kHistoryKinds; ++kind) {
    HistoryTable& t = view.heads[head].table[kind];
    const float* entries = view.entries_of(head, kind);
    if (rules.by_threshold) {
      t.floor = kListedThreshold * threshold_of(rules, before, kind, n);
    } else {
      const uint32_t target = list_target(before, kind, n, candidates, group);
      uint32_t above = 0;
      for (uint32_t i = 0; i < n; ++i) {
        if (entries[i] > t.floor) values[above++] = entries[i];
      }
      if (above > longest_list(target)) {
        std::nth_element(values, values + target, values + above, std::greater<>());
        t.floor = values[target];
      }
    }
    list_all(t, entries, n, view.list_of(head, kind));
  }
}

void rescale_lists(const HistoryView& view, uint32_t head, uint32_t n) {
  rescale(view, head, n);
  for (uint32_t kind = 0; kind < kHistoryKinds; ++kind)
    filter_list(view.heads[head].table[kind], view.entries_of(head, kind), view.list_of(head, kind));
}

}  // namespace weir::cpu
