// The op attn_history: attention over the tokens that mattered to earlier steps.
#pragma once

#include <cstdint>

#include "ops/attn_paged.h"
#include "ops/history.h"

namespace weir {

// Attention of one query row over the tokens that mattered to the steps before (docs/algorithms.md, "LFPS"). All pages
// are in the pool, and a page's row is its position / kPageTokens. Per query head:
// - a head whose sinks are estimated to have a share of more than HistoryRules::eta gets that share of the sinks' mean
//   and the rest of the mean of all other values, and its tables stay as they are; unless `size.top` covers all tokens;
// - else the listed entries of both tables are candidates, then their neighbours (kHistoryNeighbours) that are above
//   the mean of a table, as long as there is room for more candidates. The heads of a group share candidates. It
//   attends the sinks, and of the candidates the `size.top` ones with the highest logits, the earlier one of equals;
// - half of its attention, without the sinks', is added to both tables, which decay by gamma.
// With as many `size.candidates` as tokens all of them are candidates. Tokens of pages with kPageKept are candidates
// and are attended besides the others.
//
// Which tokens are candidates depends on the query only by which heads look at more than the sinks. So a first call
// with `only_looks_ahead` can find them while the query is computed, and prefetch their keys; it reads the
// tables, and nothing of attn but pages and position. The call that attends then has the results that it has without.
struct AttnHistoryArgs {
  AttnPagedArgs attn;  // n_tok is 1; select, q_sink, page_mass, lse and carry are null, window is 0
  HistoryView history;
  HistoryRules rules;
  HistorySize size;
  const uint32_t* flags;  // [n_kv_heads, capacity] kPage*
  uint32_t* n_read;       // out [n_kv_heads] keys that were read, those of sinks included
  // Out [n_heads, HistoryView::capacity] tokens attended, without sinks, ascending, and [n_heads] how many; a bypassed
  // head has none. Both or neither may be null.
  uint32_t *chosen = nullptr, *n_chosen = nullptr;
  HistoryAhead ahead = {};        // in and out, of this position and layer
  bool only_looks_ahead = false;  // to `ahead`; else what is there is used, and then it is empty
};

}  // namespace weir
