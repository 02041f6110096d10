// The op attn_paged: attention over pages.
#pragma once

#include <cstdint>

#include "ops/types.h"

namespace weir {

// Attention over more pages than one call sees: the pages come in parts, ascending, each a multiple of kSplitPages but
// the last. Between the calls AttnPagedArgs::out and the carry hold what the backend needs. On the CPU, with heads of a
// multiple of 8, the result has the bits of one call of several rows over all pages.
struct AttnCarry {
  float* high;                // in/out [n_tok, n_heads] maximum of the logits so far; on a GPU the log-sum-exp
  float* sum;                 // in/out [n_tok, n_heads] of exp(logit - high)
  bool first, last;           // part
  float* part_out = nullptr;  // [n_tok, n_heads, head_dim] room for the output of a part, on a GPU
};

// Which of the tokens of the listed pages a decode step attends: the best `n`, or all if there are no more. A token's
// score is the sum over the list's query heads of its weight among all of the list; of equals the earlier one is
// taken. Those of the last page, of the first n_front pages, and of pages that the application pinned are always
// attended, and count. A KV head with a window of its own attends all that is listed.
struct TokenChoice {
  uint32_t n = 0;                   // 0: all tokens
  uint32_t n_front = 0;             // table rows
  const uint32_t* flags = nullptr;  // [n_kv_heads, capacity]
};

// Attention of n_tok query rows (positions pos, pos+1, ...) over pages: causal, grouped query heads, softmax in f32.
// Per KV head the listed pages are taken in list order, in units of kSplitPages. Each unit gives a partial (o, lse);
// the partials are merged in ascending order (docs/algorithms.md, "Merging partial attention"). The reference defines
// exactly this order.
struct AttnPagedArgs {
  float* out;      // out [n_tok, n_heads, head_dim]
  const float* q;  // [n_tok, n_heads, head_dim]
  // Query for table rows < n_sink_pages, with a window only for their tokens at positions < n_sink; null: q for all.
  const float* q_sink;
  KvView kv;
  uint32_t n_tok, n_heads;
  uint32_t pos;           // position of the first query row
  float scale;            // logit = scale * q.k
  uint32_t n_sink_pages;  // table rows at the front that q_sink applies to
  uint32_t n_sink;        // with window > 0: tokens at positions < n_sink stay visible
  uint32_t window;  // 0: no mask; otherwise the row at position t sees positions j with j < n_sink or j > t - window
  const uint32_t* select;    // [n_lists, capacity] table rows to attend, ascending; null: all rows in use
  const uint32_t* n_select;  // [n_lists]; null with select
  // n_lists is n_heads and every query head attends pages of its own; otherwise n_lists is n_kv_heads.
  bool list_per_head;
  // Out [n_heads, capacity]: of the LAST query row, the attention mass of each listed page, in list order; null: not
  // computed.
  float* page_mass;
  // Out [n_tok, n_heads]: log of the sum of exp(logit) over what the row sees and the head's sink; null: not computed.
  float* lse;
  // [n_heads] logit for each head that takes part in the softmax and has no value, as it is: neither scaled nor capped;
  // null: none. Masses are shares of the whole softmax, so with sinks they sum to less than 1.
  const float* sinks = nullptr;
  float soft_cap = 0.0f;  // logit = cap * tanh(scale * q.k / cap); 0: none
  // [n_kv_heads] windows of single heads, with head_sinks instead of window and n_sink; 0: these two. Null: none has
  // one. Not with q_sink, and not in attn_progressive, which knows none.
  const uint32_t* head_windows = nullptr;
  uint32_t head_sinks = 0;
  // [n_tok, n_kv_heads, head_dim] keys and values of the query rows' own tokens, which are attended as they are here,
  // not as their pages have them; null: all are in pages. With several rows alone: a prompt that looked at its own
  // words through rounding would pass the error on to all that follows (docs/results/formats).
  const float *k_rows = nullptr, *v_rows = nullptr;
  const AttnCarry* carry = nullptr;  // without select, q_sink and page_mass; null: this call sees all pages
  TokenChoice tokens = {};           // of one query row, without q_sink and list_per_head; the CPU and the reference
};

// Whether a table row's tokens are always attended.
inline bool takes_all_tokens(const AttnPagedArgs& a, uint32_t kv_head, uint32_t row) {
  return row + 1 == a.kv.n_pages[kv_head] || row < a.tokens.n_front ||
         (a.tokens.flags[size_t{kv_head} * a.kv.capacity + row] & kPageKept) != 0;
}

constexpr bool has_own_window(const AttnPagedArgs& a, uint32_t kv_head) {
  return a.head_windows != nullptr && a.head_windows[kv_head] != 0;
}
// A row of k_rows or v_rows; null: the token is in its page.
inline const float* own_row(const AttnPagedArgs& a, const float* rows, uint32_t kv_head, uint32_t pos) {
  if (rows == nullptr || pos < a.pos) return nullptr;
  return rows + (size_t{pos - a.pos} * a.kv.n_kv_heads + kv_head) * a.kv.head_dim;
}
// The arguments as one head's: with its window, if it has one of its own.
inline AttnPagedArgs args_of_head(const AttnPagedArgs& a, uint32_t kv_head) {
  AttnPagedArgs own = a;
  if (!has_own_window(a, kv_head)) return own;
  own.window = a.head_windows[kv_head];
  own.n_sink = a.head_sinks;
  return own;
}

}  // namespace weir
