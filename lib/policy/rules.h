// A policy's decode step on the host, from its rules (lib/ops/step_rules.h): which page leaves a stream, which pages a
// step attends, and what it observes of the attention. Kernels of devices follow the same rules; the tests compare
// theirs with these. docs/algorithms.md has the equations.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include "core/status.h"
#include "kv/tables.h"
#include "ops/attn_stop.h"
#include "ops/step_rules.h"
#include "ops/types.h"

namespace weir {

class KvCache;
class PageCopies;
class PageFetcher;
struct OpTable;

// When it is asked which page leaves.
enum class Phase : uint8_t { kPrompt, kPromptEnd, kDecode };

struct RoomArgs {
  Phase phase = Phase::kDecode;
  uint32_t pos = 0;      // position of the first token that will be appended
  uint32_t opens = 0;    // pages that the coming tokens will open
  bool is_full = false;  // the stream has too few free rows for them, or with recall too few free slots
  uint32_t stream = 0;   // index of the stream, layer * n_kv_heads + KV head
};

// Pages to attend; see AttnPagedArgs. Null: all.
struct PageLists {
  const uint32_t* select = nullptr;
  const uint32_t* n_select = nullptr;
  AttnStop stop = {};     // with microbatch > 0 attention stops by itself; afterwards the lists hold what it attended
  PageSource* source = nullptr;  // with `stop`: where listed pages come from that are not in the pool
  uint32_t n_tokens = 0;         // > 0: attended are so many tokens of these pages
};

struct SelectArgs {
  uint32_t layer;
  uint32_t n_heads;
  const float* q;      // [n_heads, head_dim] rotated query of the step
  float* page_score;   // scratch [n_heads, capacity of the layer]
  uint32_t* select;    // out: the lists, [n_heads, capacity]
  uint32_t* n_select;  // [n_heads]
  PageCopies* copies;
  PageFetcher* fetcher = nullptr;  // with recall and attention that stops by itself
};

struct ObserveArgs {
  uint32_t layer;
  uint32_t n_heads;
  const float* q;          // [n_heads, head_dim] rotated query of the step
  const float* page_mass;  // [n_heads, capacity] exact masses in list order, if the rules need them
  float* page_score;       // scratch of the same shape, if the rules need digests
  PageLists lists;         // from select_pages
  uint32_t now;            // number of tokens, including the current one
};

// The row that must leave stream `s` before tokens are appended, or kNoRow. In prompts, too, where no prompt policy
// decides.
uint32_t choose_victim(const StepRules& rules, const StreamView& s, const RoomArgs& room);
// The pages that a step attends in one layer; `lists` stay as they are if these are all. `scale` is that of the logits.
Status select_pages(const StepRules& rules, float scale, OpContext& cx, const OpTable& ops, KvCache& kv,
                    const SelectArgs& a, PageLists& lists);
// After the attention of one layer.
Status observe_pages(const StepRules& rules, float scale, OpContext& cx, const OpTable& ops, KvCache& kv,
                     const ObserveArgs& a);
// With rules.in_cache_pos: the position at which the front rows of stream `s` see the query at `pos`.
uint32_t in_cache_pos(const StepRules& rules, const StreamView& s, uint32_t pos);

// What the rules need from attention and from the tables.
bool needs_page_mass(const StepRules& rules);
DigestKind needed_digest(const StepRules& rules);
// The rules that a step follows, and whether a backend has all of them: WEIR_ERR_UNSUPPORTED naming one that it lacks.
RuleSet rules_in(const StepRules& rules);
Status check_backend_rules(const StepRules& rules, const RuleSet& have, const char* backend);
// Number of first rows that never leave, whatever their flags.
constexpr uint32_t front_rows(const StepRules& rules) {
  return std::max(rules.front_rows, rules.candidate_flags == 0 ? rules.sink_pages : 0u);
}

// --- recall ----------------------------------------------------------------------------------------------------------

// Rows of the pages that a step wants of a stream, ascending.
using WantedPages = std::span<const uint32_t>;

// Where prompts have slots of their own: replaces the list of wanted pages by the best of each part, whatever the pages
// of the other score. There is room for all rows.
void want_by_parts(const StepRules& rules, const StreamView& s, uint32_t* list, uint32_t& n);
// The wanted page that comes back next: the best of those that are cold and not lost.
uint32_t next_to_return(const StepRules& rules, const StreamView& s, WantedPages wanted);
// The page over which `row` comes back where no slot is free, or kNoRow.
uint32_t gives_slot_to(const StepRules& rules, const StreamView& s, uint32_t row, WantedPages wanted);
// Replaces the wanted pages by those to attend; returns whether these are all pages.
bool list_attended(const StepRules& rules, const StreamView& s, uint32_t* list, uint32_t& n);

// --- rows ------------------------------------------------------------------------------------------------------------

// True for an open page that still takes tokens; such a page never leaves.
inline bool is_filling(const StreamView& s, uint32_t row) { return row + 1 == s.n_pages && s.len[row] < kPageTokens; }

// A page's score; NaN counts as -inf (docs/algorithms.md, "Ties and determinism").
inline float score_of(const StreamView& s, uint32_t row) {
  return std::isnan(s.last_score[row]) ? -INFINITY : s.last_score[row];
}

// The row before `end` that may leave and has the least key, the lower one of equals; kNoRow if none may.
template <class May, class Key>
uint32_t min_row(uint32_t end, const May& may, const Key& key) {
  uint32_t best = kNoRow;
  for (uint32_t row = 0; row < end; ++row) {
    if (may(row) && (best == kNoRow || key(row) < key(best))) best = row;
  }
  return best;
}

}  // namespace weir
