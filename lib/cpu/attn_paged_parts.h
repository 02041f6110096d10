// What decode and prefill attention share: the list of pages, the tokens of a page that a query row sees, and the
// layout of scratch memory. Decode takes one query row and splits the pages among threads; prefill takes many rows and
// splits the rows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/memory.h"
#include "ops/attn_paged.h"

namespace weir::cpu {

inline constexpr uint32_t kUnitTokens = kSplitPages * kPageTokens;

// Rows of f32 vectors are padded to a multiple of this: two of the longest vectors (64 bytes).
inline constexpr size_t kRowPad = 32;

// Query rows (tokens times heads of a group) that prefill handles together: enough that converting a page to f32 is a
// few percent of the work, and few enough that the logits of a unit (kPrefillRows * 2 KiB) stay in L2.
inline constexpr uint32_t kPrefillRows = 128;

// One listed page of a stream.
struct ListedPage {
  PagePart<const uint16_t> keys, values;
  uint32_t first_pos;
  uint32_t len;
  uint32_t sink_tokens;  // tokens at its front that use the sink query
};

// With a window, tokens of a sink page beyond the sinks belong to the window and use the window's query.
inline uint32_t sink_tokens_of(const AttnPagedArgs& a, uint32_t row, uint32_t first_pos) {
  if (a.q_sink == nullptr || row >= a.n_sink_pages) return 0;
  if (a.window == 0) return kPageTokens;
  return a.n_sink > first_pos ? std::min(kPageTokens, a.n_sink - first_pos) : 0;
}

// A work item has a list of pages and the query heads that attend it: a KV head with its group or, with list_per_head,
// one query head.
inline uint32_t n_lists(const AttnPagedArgs& a) { return a.list_per_head ? a.n_heads : a.kv.n_kv_heads; }
inline uint32_t heads_of_list(const AttnPagedArgs& a) { return a.n_heads / n_lists(a); }
inline uint32_t kv_head_of_list(const AttnPagedArgs& a, uint32_t list) { return list / (n_lists(a) / a.kv.n_kv_heads); }

inline uint32_t n_listed(const AttnPagedArgs& a, uint32_t list) {
  return a.select != nullptr ? a.n_select[list] : a.kv.n_pages[kv_head_of_list(a, list)];
}

inline ListedPage listed_page(const AttnPagedArgs& a, uint32_t list, uint32_t listed) {
  const uint32_t row = a.select != nullptr ? a.select[size_t{list} * a.kv.capacity + listed] : listed;
  const size_t at = size_t{kv_head_of_list(a, list)} * a.kv.capacity + row;
  const uint32_t kv_head = kv_head_of_list(a, list);
  return {a.kv.keys_of(kv_head, row), a.kv.values_of(kv_head, row), a.kv.first_pos[at], a.kv.len[at],
          sink_tokens_of(a, row, a.kv.first_pos[at])};
}

// Tokens of a page that a query row sees: [0, sink_end) and [begin, end), with sink_end <= begin <= end <= len.
struct Seen {
  uint32_t sink_end, begin, end;
  bool none() const { return sink_end == 0 && begin == end; }
  bool all() const { return sink_end == begin && end == kPageTokens; }
};

inline Seen seen_by(const AttnPagedArgs& a, const ListedPage& page, uint64_t row_pos) {
  const uint64_t first = page.first_pos;
  Seen s = {0, 0, 0};
  if (row_pos >= first) s.end = static_cast<uint32_t>(std::min<uint64_t>(page.len, row_pos - first + 1));
  if (a.window == 0 || row_pos < a.window) return s;
  const uint64_t window_begin = row_pos - a.window + 1;
  if (window_begin > first) s.begin = static_cast<uint32_t>(std::min<uint64_t>(s.end, window_begin - first));
  if (a.n_sink > first) s.sink_end = static_cast<uint32_t>(std::min<uint64_t>(s.begin, a.n_sink - first));
  return s;
}

// The elements of a head are permuted in scratch: of every two vectors' worth of elements first the even ones, then the
// odd ones. Widening pairs of bf16 by a shift and a mask gives this order.
struct DecodeScratch {
  size_t d_pad;      // head_dim, padded
  size_t max_units;  // units of the longest list
  float* q;          // [2, n_heads, d_pad] query and sink query, permuted and scaled
  float* part;       // [n_heads, max_units, d_pad] partial results, permuted
  float* lse;        // [n_heads, max_units] of each unit
  float* sum;        // [n_heads, max_units] sum of exp(logit - maximum) of each unit
  float* weight;     // [n_threads, group, kUnitTokens] logits, then weights
};

inline DecodeScratch lay_out_decode(Arena& arena, uint64_t n_threads, uint64_t n_heads, uint64_t n_kv_heads,
                                    uint64_t head_dim, uint64_t max_pages) {
  DecodeScratch s;
  s.d_pad = align_up(head_dim, kRowPad);
  s.max_units = (max_pages + kSplitPages - 1) / kSplitPages;
  s.q = arena.take<float>(2 * n_heads * s.d_pad);
  s.part = arena.take<float>(n_heads * s.max_units * s.d_pad);
  s.lse = arena.take<float>(n_heads * s.max_units);
  s.sum = arena.take<float>(n_heads * s.max_units);
  s.weight = arena.take<float>(n_threads * (n_heads / n_kv_heads) * kUnitTokens);
  return s;
}

// Scratch of one thread. Matrices are stored in strips of kStrip columns (two vectors), one after another, as the inner
// kernel reads them. Query row r = token * group + head of the group.
struct PrefillScratch {
  size_t d_pad;
  float* q;        // [2, strips of rows, head_dim, kStrip] query and sink query, scaled
  float* weight;   // [strips of rows, kUnitTokens, kStrip] logits, then weights
  float* tile;     // keys [tokens, head_dim] or values [strips of d_pad, tokens, kStrip] of up to kTilePages
  float* out;      // [rows, d_pad] not yet divided by sum
  float* high;     // [rows] maximum of the logits so far
  float* sum;      // [rows] of exp(logit - high)
  float* shrink;   // [rows] factor that rescales the earlier sums to the new maximum
  int32_t* token;  // [rows] token of each row, counted from the first of the call
};

// Pages that are converted to f32 at a time: 16 KiB of values for one strip of columns, half of an L1 cache.
inline constexpr uint32_t kTilePages = 8;

inline uint32_t prefill_block_tokens(uint32_t group) { return std::max(1u, kPrefillRows / group); }

inline PrefillScratch lay_out_prefill(Arena& arena, uint64_t n_tok, uint64_t group, uint64_t head_dim) {
  const uint64_t tokens = std::min<uint64_t>(n_tok, prefill_block_tokens(static_cast<uint32_t>(group)));
  const uint64_t rows = align_up(tokens * group, kRowPad);
  PrefillScratch s;
  s.d_pad = align_up(head_dim, kRowPad);
  s.q = arena.take<float>(2 * rows * head_dim);
  s.weight = arena.take<float>(rows * kUnitTokens);
  s.tile = arena.take<float>(kTilePages * kPageTokens * s.d_pad);
  s.out = arena.take<float>(rows * s.d_pad);
  s.high = arena.take<float>(rows);
  s.sum = arena.take<float>(rows);
  s.shrink = arena.take<float>(rows);
  s.token = arena.take<int32_t>(rows);
  return s;
}

// Both need the scratch of all threads in cx.scratch; the caller has checked its size.
void attn_decode(OpContext& cx, const AttnPagedArgs& a);
void attn_prefill(OpContext& cx, const AttnPagedArgs& a);

// False on an instruction set without vectors, where the reference does the work.
bool attn_has_kernels();

}  // namespace weir::cpu
