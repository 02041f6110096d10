// The lists of attention's history: which tokens a step looks at, and what of a table stays listed after it. Nothing
// here looks at a whole table, but for a new list after a prompt or after a threshold fell.
#pragma once

#include <cstdint>

#include "core/memory.h"
#include "ops/attn_history.h"
#include "ops/history_begin.h"

namespace weir::cpu {

inline constexpr uint32_t kBits = 64;              // tokens of a word of a set
inline constexpr uint32_t kUnlisted = UINT32_MAX;  // HistoryTable::n_list of a list that is to be made anew

// Scratch for one KV head.
struct CandidateScratch {
  uint64_t* group;  // [tokens / kBits] set of the candidates
  uint64_t* own;    // [group, words] the same of each query head
  uint32_t* keys;   // [tokens, padded] entries of a list
  uint64_t words;
};
inline CandidateScratch lay_out_candidates(Arena& arena, uint64_t group, uint64_t tokens) {
  CandidateScratch s;
  s.words = tokens / kBits + 1;
  s.group = arena.take<uint64_t>(s.words);
  s.own = arena.take<uint64_t>(group * s.words);
  s.keys = arena.take<uint32_t>(align_up(tokens, kBits) + kBits);  // whole vectors are stored
  return s;
}

// Sets s.group to the candidates of a KV head among n tokens. looks [group]: which heads take part, one at least.
// Returns what HistoryView::fill is afterwards.
float mark_candidates(const AttnHistoryArgs& a, uint32_t kv_head, uint32_t n, const bool* looks,
                      const CandidateScratch& s);
uint32_t count_members(const uint64_t* set, uint32_t words);
// Writes the members of a set of n tokens, ascending; returns how many there are.
uint32_t list_members(const uint64_t* set, uint32_t n, uint32_t* tokens);

// Brings lists and floors of a head up to date after its tables changed: what newly rose above a floor is listed
// already, or n_list is kUnlisted. `by_head`: listed_by_head.
void trim_lists(const HistoryView& view, uint32_t head, uint32_t n, const HistoryRules& rules, double by_head,
                uint32_t* keys);
// The same after the tables were written as a whole; floors are 0 before.
void make_lists(const HistoryView& view, uint32_t head, uint32_t n, const HistoryRules& rules, double by_head,
                uint32_t* keys);
// Shortens the lists of a group, which are as long as they may be, until they leave room for neighbours.
void fit_lists(const HistoryBeginArgs& a, uint32_t kv_head, uint32_t n, const CandidateScratch& s);
// Brings a head's entries back to a scale of 1, and its lists with them.
void rescale_lists(const HistoryView& view, uint32_t head, uint32_t n);

}  // namespace weir::cpu
