// The table of operations that every backend fills, and the arguments of each. Shapes are slowest axis first, row-major; activations are f32.
// Arguments are checked by the callers before a step begins; ops compute. The reference (lib/ops/*_ref.cpp) is the definition.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/status.h"
#include "core/thread_pool.h"
#include "quant/weight_type.h"

namespace weir {

// Tokens of a KV page; the only size there is. Recorded in plans and files, so it can become an option without breaking them.
inline constexpr uint32_t kPageTokens = 16;

// Pages that attention handles as one unit of work: partial results are merged in ascending order of these units, so neither the number of threads
// nor the policy changes the result.
inline constexpr uint32_t kSplitPages = 32;

// A weight matrix [n_rows, n_cols] as it lies in the file: y = W x has n_rows outputs. A vector is one row.
struct Weight {
  const uint8_t* data = nullptr;  // null: absent
  WeightType type = WeightType::kF32;
  uint32_t n_rows = 0;
  uint32_t n_cols = 0;
  size_t row_bytes = 0;
};

// One layer's KV streams of one session. A stream's table has `capacity` rows, of which n_pages are in use, in ascending order of position.
struct KvView {
  uint16_t* pool = nullptr;             // [n_slots, 2, kPageTokens, head_dim] bf16: K rows then V rows of a page
  uint16_t* digests = nullptr;          // [n_slots, 2, head_dim] bf16: max then min of the page's keys; null when the policy needs none
  const uint32_t* slots = nullptr;      // [n_kv_heads, capacity] slot of each table row
  const uint32_t* first_pos = nullptr;  // [n_kv_heads, capacity] position of the row's first token
  const uint32_t* len = nullptr;        // [n_kv_heads, capacity] tokens in the page, tokens being appended included
  const uint32_t* n_pages = nullptr;    // [n_kv_heads] rows in use
  uint32_t capacity = 0;
  uint32_t n_kv_heads = 0;
  uint32_t head_dim = 0;
  size_t page_elements() const { return size_t{2} * kPageTokens * head_dim; }
};

struct OpContext {
  ThreadPool* pool = nullptr;
  std::byte* scratch = nullptr;  // the backend's, of at least scratch_bytes(shapes) bytes, 64-byte aligned
  uint64_t scratch_bytes = 0;
};

// x[i] = row tokens[i] of the embedding table, decoded.
struct EmbedArgs {
  float* x;             // out [n_tok, n_cols]
  Weight table;         // [vocab_size, d_model]
  const int32_t* tokens;  // [n_tok]
  uint32_t n_tok;
};

// y = x / sqrt(mean(x^2) + eps) * weight, row by row. y may be x.
struct RmsNormArgs {
  float* y;             // out [n_tok, n]
  const float* x;       // [n_tok, n]
  const float* weight;  // [n]
  uint32_t n_tok, n;
  float eps;
};

// One output of a matmul: y = W x (+ bias), or y += W x (+ bias).
struct MatmulPart {
  Weight w;             // [n_rows, n_cols]
  const float* bias;    // [n_rows] or null
  float* y;             // [n_tok, n_rows], row-major
  bool accumulate;
};

// Up to three matrices applied to the same input in one parallel region (q, k and v).
struct MatmulArgs {
  MatmulPart part[3];
  uint32_t n_parts;
  const float* x;       // [n_tok, n_cols], shared by the parts; no y may overlap it
  uint32_t n_tok;
};

// y = silu(Wg x) * (Wu x).
struct GluMatmulArgs {
  float* y;             // out [n_tok, n_rows]
  Weight gate, up;      // [n_rows, n_cols], both of one type or of two
  const float* x;       // [n_tok, n_cols]
  uint32_t n_tok;
};

// Which elements of a head rotate together: (2i, 2i+1), or (i, i + rope_dim/2).
enum class RopeLayout : uint8_t { kAdjacent, kHalfSplit };

// Optional per-head RMS norm of q and k, rotation of both, and storing of k and v (rounded to bf16, nearest even) in the pages; with digests,
// max and min of the stored keys are updated (a page's first token initialises them).
struct RopeAppendArgs {
  float* q;                  // in/out [n_tok, n_heads, head_dim]: rotated with cos_sin
  float* q_sink;             // out, the same shape: q rotated with cos_sin_sink instead; null when not wanted
  float* k;                  // in/out [n_tok, n_kv_heads, head_dim]: rotated
  const float* v;            // [n_tok, n_kv_heads, head_dim]
  const float* q_norm;       // [head_dim] or null
  const float* k_norm;       // [head_dim] or null
  float norm_eps;
  const float* cos_sin;      // [n_tok, rope_dim / 2, 2]
  const float* cos_sin_sink; // the same shape, or null
  uint32_t rope_dim;         // even, <= head_dim; elements beyond it pass through
  RopeLayout layout;
  uint32_t n_tok, n_heads;
  uint32_t pos;              // position of the first of the n_tok tokens
  KvView kv;
  const uint32_t* append_row;  // [n_kv_heads] table row that holds position `pos`; later tokens follow in this and the next rows
};

// Attention of n_tok query rows (positions pos, pos+1, ...) over pages: causal, grouped query heads, softmax in f32.
// Per KV head the pages are taken in units of kSplitPages listed pages (in list order); each unit gives a partial (o, lse), merged in ascending order
// (algorithms 1.6). The reference defines exactly this order.
struct AttnPagedArgs {
  float* out;                // out [n_tok, n_heads, head_dim]
  const float* q;            // [n_tok, n_heads, head_dim]
  const float* q_sink;       // query for table rows < n_sink_pages, with a window only for their tokens at positions < n_sink; null: use q for all
  KvView kv;
  uint32_t n_tok, n_heads;
  uint32_t pos;              // position of the first query row
  float scale;               // logit = scale * q.k
  uint32_t n_sink_pages;     // table rows at the front that q_sink is for
  uint32_t n_sink;           // with window > 0: tokens at positions < n_sink stay visible
  uint32_t window;           // 0: no mask; else row at position t sees positions j with j < n_sink or j > t - window
  const uint32_t* select;    // [n_kv_heads, capacity] table rows to attend, ascending; null: all rows in use
  const uint32_t* n_select;  // [n_kv_heads]; null with select
  float* page_mass;          // out [n_heads, capacity]: of the LAST query row, the attention mass of each listed page, in list order; null: not wanted
};

// Quest's bound of q.k over each page: sum_i max(q_i * max_i, q_i * min_i), unscaled (algorithms 1.7). One query row.
struct PageScoreArgs {
  float* score;    // out [n_heads, capacity], table rows in use
  const float* q;  // [n_heads, head_dim]
  KvView kv;
  uint32_t n_heads;
};

// Flags of a page in its stream's table.
enum : uint32_t {
  kPagePinned = 1,  // may never be evicted
  kPagePrompt = 2,  // holds at least one prompt token
};

enum class StampRule : uint8_t { kTopR, kAlpha };

// RaaS stamping of one layer (algorithms 2.6, step 3): per stream, W[p] = mean (kTopR) or max (kAlpha) of the group's weights; the ceil(r * m) best
// of the ranked pages, or the pages with W > alpha, get stamp `now`. The last row (the open page) always gets it. last_score = W.
// Ties: the lower row first.
struct PageStampArgs {
  const float* weight;     // [n_heads, capacity]; a probability over the stream's pages
  uint32_t* stamp;         // in/out [n_kv_heads, capacity]
  float* last_score;       // out [n_kv_heads, capacity]
  const uint32_t* flags;   // [n_kv_heads, capacity] kPage*
  const uint32_t* n_pages; // [n_kv_heads]
  uint32_t capacity, n_heads, n_kv_heads;
  uint32_t now;
  StampRule rule;
  bool rank_all;           // rank pinned pages too (rank_scope ALL)
  float r, alpha;
};

#define WEIR_OP(name, Args)                                 \
  using name##_fn = Status (*)(OpContext&, const Args&);    \
  namespace ref {                                           \
  Status name(OpContext& cx, const Args& a);                \
  }
#include "ops/ops.inc"
#undef WEIR_OP

struct OpTable {
#define WEIR_OP(name, Args) name##_fn name = nullptr;
#include "ops/ops.inc"
#undef WEIR_OP
};

// Largest sizes that a session will ask of its ops.
struct OpShapes {
  uint32_t n_threads = 1;
  uint32_t max_tok = 1;      // rows of one call
  uint32_t max_cols = 0;     // longest matmul input: max(d_model, d_ff, n_heads * head_dim)
  uint32_t max_rows = 0;     // most outputs of a matmul: max(vocab_size, d_ff, ...)
  uint32_t n_heads = 0, n_kv_heads = 0, head_dim = 0;
  uint32_t max_pages = 0;    // most pages of a stream
};

struct Backend {
  const char* name;                                // "cpu", "reference"
  int32_t device;                                  // WEIR_DEVICE_*
  OpTable ops;
  uint64_t (*scratch_bytes)(const OpShapes& shapes);
  const char* (*target)();                         // instruction set or device, static text
};

const Backend& reference_backend();
const Backend& cpu_backend();

}  // namespace weir
