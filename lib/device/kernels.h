// What the kernels of a decode step and of a prompt take that are no ops of the table: the same for all device modules.
// Pointers are device memory unless a comment says something else. `overlap`: the kernel may begin before the one
// before it has ended, where the device can do that. What each kernel computes is said with its arguments; kernels.inc
// lists them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kv/device_recall.h"
#include "kv/page_events.h"
#include "kv/step_state.h"
#include "kv/tables.h"
#include "ops/ops.h"
#include "ops/step_rules.h"

namespace weir::device {

// Maximum number of input vectors (columns) of one GEMV.
inline constexpr uint32_t kMaxColumns = 8;

// Another input vector of the same GEMV, and where its outputs go.
struct GemvColumn {
  const float* x;
  float* y[3];  // by part, as part[i].y
};

// GEMV with one or a few input vectors, fused with its neighbours: RMS norm of the input, residual, gated activation.
// Every column's y has the same bits as when it is computed alone.
struct GemvArgs {
  MatmulPart part[3];  // the rows of all parts are outputs of one launch; y [n_rows]
  uint32_t n_parts = 0;
  const float* x = nullptr;     // [n_cols]
  const float* norm = nullptr;  // [n_cols] weight of an RMS norm of x, or null
  float eps = 0.0f;
  bool glu = false;  // part[0] is the gate, part[1] the up matrix; part[0].y = activation(gate x) * (up x)
  Gate activation = Gate::kSilu;
  bool overlap = false;

  // More input vectors; bias, accumulate, norm, eps and glu apply to every column.
  const GemvColumn* more = nullptr;  // [n_more] host memory, copied
  uint32_t n_more = 0;               // at most kMaxColumns - 1
};

// One token of a decode step: the op's arguments, with a norm of x fused. x may be y.
struct ExpertsStepArgs {
  ExpertsArgs op;               // n_tok is 1
  const float* norm = nullptr;  // [d_model] weight of an RMS norm of x, or null
  float eps = 0.0f;
  uint32_t* counter = nullptr;  // zero before and after
  bool overlap = false;         // of the first kernel
};

// The beginning of a decode step: evicts the pages that the policy's rules select, opens a page in every stream where
// position n_tokens is the first of a page, counts the token in the pages' `len`, and computes the RoPE factors cos_sin
// [rope_dim / 2, 2] of position n_tokens for each rotation of the model. step_end increments n_tokens itself.
struct StepBeginArgs {
  KvTables tables;
  StepRules rules;
  StepState* state;
  const double* angles;  // [n_rotations, rope_dim / 2] radians per position
  double magnitude[kMaxRotations];
  uint32_t rope_dim, n_rotations;
  uint32_t stride;  // from one rotation to the next in cos_sin and cos_sin_sink
  float* cos_sin;
  float* cos_sin_sink;   // null unless the rules have in_cache_pos
  uint32_t* counter;     // zero before and after
  PageEventRing events;  // in host memory
  // With recall: where copies are, which rows have their pages in the pool, and the digests, each of all layers by row.
  const uint32_t* raw_index = nullptr;
  uint32_t* resident = nullptr;  // [n_streams, resident_words(max_capacity)] one bit per row
  uint32_t max_capacity = 0;
  uint16_t* digests = nullptr;
  uint32_t digest_elements = 0;
};

// The end of a step: commits it, and finds the greedy token.
struct StepEndArgs {
  const float* logits;  // [vocab_size]
  uint32_t vocab_size;
  bool commit;  // whether the step's token counts, unless the step is late
  bool overlap = true;
  StepState* state;
  StepState* mailbox;        // host memory that the device writes to
  unsigned long long* best;  // zero before and after
  uint32_t* counter;         // zero before and after
};

// rope_append whose position is in device memory.
struct RopeAppendAtArgs {
  RopeAppendArgs op;
  const uint32_t* n_tokens;
  bool overlap;
};

// page_stamp in the step that `state` is about; nothing if it is late.
struct PageStampAtArgs {
  PageStampArgs op;
  const StepState* state;
};

// softmax(scale * score) over the table rows in use of each head, in place. It turns digest estimates into weights, for
// RaaS with stamps from digests.
struct PageSoftmaxArgs {
  float* score;             // in/out [n_heads, capacity]
  const uint32_t* n_pages;  // [n_kv_heads]
  uint32_t capacity, n_heads, n_kv_heads;
  float scale;
};

// page_score with an op.q that is neither normalised nor rotated. The kernel does both, as rope.q_norm, rope.norm_eps,
// rope.cos_sin, rope.rope_dim and rope.layout say, and does not write the result to memory. The last row, the open
// page, gets -inf: page_select does not read its estimate.
// Numerics: with kMinMax and kCuboidMean the first half of a digest must not be below the second, as digest_page makes
// them.
struct PageScoreStepArgs {
  PageScoreArgs op;
  RopeAppendArgs rope;
  bool overlap = true;
};

// Attention of one query row over KV pages. One launch rotates the query, appends the new key and value, attends the
// pages, and computes page masses and the policy's observation.
struct AttnDecodeArgs {
  AttnPagedArgs attn;  // n_tok is 1
  // With append attn.q, rope.k and rope.v are the outputs of the projections. The kernel does what rope_append does,
  // and updates the digests that append_keeps_digest names, but leaves q and k in memory unchanged.
  bool append = false;
  RopeAppendArgs rope;
  const uint32_t* n_tokens =
      nullptr;  // Device memory: the position of the query, used instead of attn.pos; null: attn.pos is used.
  std::byte* scratch = nullptr;                  // attn_decode_scratch_bytes
  uint32_t* counters = nullptr;                  // [n_kv_heads] zero before and after
  unsigned long long* pages_attended = nullptr;  // += the pages listed; null: not counted
  // With stamps: does what page_stamp would do afterwards with page_mass; `now` is the query's position + 1, whatever
  // stamp.now says. Without: the op is needed.
  bool stamps = false;
  PageStampArgs stamp;
  bool overlap = false;
};

// attn_decode over all pages, the most important ones first, until enough was seen (AttnStop). In `attn` no list, no
// masses and no observation, and append only where attn_stop_appends; `stop` has rank, flags and, if it stops by
// bounds, the estimates of every head. Adds the pages that were attended to pages_attended.
struct AttnStopArgs {
  AttnDecodeArgs attn;
  AttnStop stop;
  uint32_t max_pages;  // of a stream, the forced ones included, which are all taken even if they are more
  // Room for lists of the pages that are attended, which not every device writes: [n_kv_heads, capacity] and
  // [n_kv_heads].
  uint32_t* select;
  uint32_t* n_select;
};

// The latest step in which a stream exchanged pages: one that the host repeats finds its own number here and brings
// nothing more. The rest is for the second kernel of page_recall.
struct RecallHead {
  uint32_t now;
  uint32_t n;  // entries
};
struct alignas(16) RecallEntry {
  uint32_t row, slot;
  uint32_t copy;  // raw slot, or kCopyElsewhere: the host sends it
  uint32_t left;  // the row that had the slot, or kNoRow
};

// Stamps what is wanted, brings back what of it is cold, and lists what is attended. If the host does not send a page
// in host.late_ns, or refuses to, state->is_late is set; the rest of the step then changes no tables and is not
// committed.
struct PageRecallArgs {
  KvTables tables;
  uint32_t layer;
  StepRules rules;
  StepState* state;
  uint32_t* select;    // in: what is wanted, out: what is attended [n_kv_heads, capacity]
  uint32_t* n_select;  // [n_kv_heads]
  uint32_t capacity;   // table rows of a stream of this layer
  uint32_t n_slots;    // pages of a stream in the pool
  uint16_t* digests;   // of this layer, by row
  uint32_t digest_elements;
  uint16_t* pool;
  uint32_t page_bytes;
  bool only_lists;            // nothing comes back (benchmarks)
  const uint32_t* raw_index;  // the device's copy of host.raw_index
  uint32_t* resident;         // [n_streams, resident_words(max_capacity)] a bit for each row whose page is in the pool
  uint32_t max_capacity;
  PageEventRing events;  // this and the rest but the journal in host memory
  DeviceRecall host;
  RecallHead* heads;     // [n_streams]
  RecallEntry* entries;  // [n_streams, host.most]
};

// A sparse layer of a decode step in one launch: rotation of the query, appending, estimates of all pages, top-k page
// selection, recall, attention over the selected pages.
// The arguments of page_select and attn_decode (with append). Of `select` the kernel reads flags, agg, budget and
// n_sink_pages and writes group_score. With recall also those of page_recall, without lists and entries. The estimates
// and the lists stay inside the kernel.
struct SparseLayerArgs {
  AttnDecodeArgs attn;
  PageSelectArgs select;
  AttnStop stop = {};          // rank and flags are not read: the kernel has them; bound is null
  PageRecallArgs recall = {};  // without tables: nothing comes back
};

// The n best logits in descending order, the lower id first among equals. NaN counts as -inf and is written as -inf.
// Tokens whose bit the mask lacks take no part; where fewer than n are left, the rest of `ids` is -1.
struct TopLogitsArgs {
  const float* logits;  // [vocab_size]
  uint32_t vocab_size;
  uint32_t n;                      // 1..min(kMaxTopLogits, vocab_size)
  int32_t* ids;                    // [n] host memory that the device writes to
  float* values;                   // [n] the same
  std::byte* scratch;              // top_logits_scratch_bytes, 8-byte aligned
  uint32_t* counter;               // zero before and after
  const uint32_t* mask = nullptr;  // [mask_words(vocab_size)], or null: all tokens take part
};

// What log-probabilities and changes of logits need besides the best ones.
struct ReadLogitsArgs {
  const float* logits;  // [vocab_size]
  uint32_t vocab_size;
  LogitPart* parts;       // [kLogitParts] host memory that the device writes to, or null
  const int32_t* tokens;  // [n_tokens] host memory that the device reads
  float* values;          // [n_tokens] host memory: the tokens' logits
  uint32_t n_tokens;
};

// Makes the digests of pages that have neither a slot nor a copy worse than any other.
struct SpoilLostArgs {
  KvTables tables;
  const uint32_t* raw_index;
  uint16_t* digests;  // by row, of all layers
  uint32_t digest_elements;
};

// Makes the bits of PageRecallArgs::resident.
struct MarkResidentArgs {
  KvTables tables;
  uint32_t* resident;
  uint32_t max_capacity;
};

// Copies the page with the tokens from position row * 16 on of every stream to pages [n_streams, page_bytes] in host
// memory; of a stream with a window only if it is there.
struct CopyRowOutArgs {
  KvTables tables;
  uint32_t row;
  const uint16_t* pool;
  uint32_t page_bytes;
  std::byte* pages;
};

// Copies pages [n, page_bytes] in host memory to the pool's slots, or from there.
struct CopyPagesArgs {
  uint16_t* pool;
  uint32_t page_bytes;
  std::byte* pages;
  const uint32_t* slots;  // [n] host memory
  uint32_t n;
  bool in;
};

// Loads a unit of a prompt's earlier pages into its window.
struct LoadUnitArgs {
  DeviceRecall host;  // page_slots, unit_pos, unit_len; raw_pages and pages
  const uint16_t* pool;
  uint16_t* window;  // out [n_kv_heads, kSplitPages, page]
  uint32_t* slots;   // out, and the next two: [n_kv_heads, kSplitPages]
  uint32_t* first_pos;
  uint32_t* len;
  uint32_t* n_pages;  // out [n_kv_heads]
  uint32_t n_kv_heads, page_bytes;
};

// Noise with the exponents of a model's keys and values in the pages of one table row, and their digests.
struct FillRowArgs {
  const uint32_t* slots;  // [n_streams] in host memory
  uint32_t row;
  KvTables tables;
  uint16_t* pool;
  uint16_t* pages;  // out, in host memory, like copy_row_out
  uint32_t head_dim;
  DigestKind digest;
  uint16_t* digests;  // of all layers, by row
  uint32_t digest_elements;
  uint64_t seed;
};

// Fills the pool with values in [-1, 1), for benchmarks.
struct FillNoiseArgs {
  uint16_t* pool;
  uint64_t n_elements;
  uint64_t seed;
};

}  // namespace weir::device
