// The table of operations that every backend fills, and the arguments of each. Shapes are slowest axis first,
// row-major; activations are f32. The callers check arguments before a step begins; ops only compute. The references
// (lib/ops/*_ref.cpp) are the definition.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "core/status.h"
#include "core/thread_pool.h"
#include "ops/history.h"
#include "ops/traits.h"
#include "quant/weight_type.h"

namespace weir {

// Tokens of a KV page, the only supported size. Plans and files record it, so it can become an option without breaking
// them.
inline constexpr uint32_t kPageTokens = 16;

// Pages that attention handles as one unit of work. Partial results are merged in ascending order of these units, so
// neither the number of threads nor the policy changes the result.
inline constexpr uint32_t kSplitPages = 32;

// Fixed-size summaries of a page's keys, from which a query's attention to the page is estimated (docs/algorithms.md,
// "Digests and their estimates"). Elements are bf16.
enum class DigestKind : uint8_t {
  kNone,
  kMinMax,      // [2, d] maximum and minimum of every channel; the only kind that every appended key updates
  kCuboidMean,  // [2, d] c + r and c - r: c the middle of maximum and minimum, r the mean distance from c
  kSphereMean,  // [d + 1] c and the mean distance of the keys from c; padded to an even count
  kCentroid,    // [d] mean
  kMeanStd,     // [2, d] mean and standard deviation
};

// Elements of one page's digest.
constexpr size_t digest_elements(DigestKind kind, size_t head_dim) {
  switch (kind) {
    case DigestKind::kNone:
      return 0;
    case DigestKind::kSphereMean:
      return head_dim + 2;
    case DigestKind::kCentroid:
      return head_dim;
    case DigestKind::kMinMax:
    case DigestKind::kCuboidMean:
    case DigestKind::kMeanStd:
      return 2 * head_dim;
  }
  return 0;
}

// The digest of `len` keys [len, head_dim], any kind but kNone; out has digest_elements. Statistics are computed in f32
// and rounded to nearest once.
void digest_page(DigestKind kind, const uint16_t* keys, uint32_t len, size_t head_dim, uint16_t* out);

// The slot of a page that is not in the pool.
inline constexpr uint32_t kNoSlot = UINT32_MAX;

// The KV streams of one layer of a session. A stream's table has `capacity` rows, of which n_pages are in use, in
// ascending order of position.
struct KvView {
  uint16_t* pool = nullptr;  // [n_slots, 2, kPageTokens, head_dim] bf16: K rows then V rows of a page
  // [n_slots, digest_elements] bf16, or with digest_by_row [n_kv_heads, capacity, digest_elements]; null when the
  // policy needs none
  uint16_t* digests = nullptr;
  DigestKind digest = DigestKind::kNone;
  bool digest_by_row = false;           // rows may have no slot
  const uint32_t* slots = nullptr;      // [n_kv_heads, capacity] slot of each table row, or kNoSlot
  const uint32_t* first_pos = nullptr;  // [n_kv_heads, capacity] position of the row's first token
  const uint32_t* len = nullptr;  // [n_kv_heads, capacity] tokens in the page, including tokens that are being appended
  const uint32_t* n_pages = nullptr;  // [n_kv_heads] rows in use
  uint32_t capacity = 0;
  uint32_t n_kv_heads = 0;
  uint32_t head_dim = 0;
  constexpr size_t page_elements() const { return size_t{2} * kPageTokens * head_dim; }
  // Index of a table row's digest, in digests of digest_elements.
  constexpr size_t digest_index(uint32_t kv_head, uint32_t row) const {
    const size_t at = size_t{kv_head} * capacity + row;
    return digest_by_row ? at : slots[at];
  }
  // Digest of a table row, and the keys [kPageTokens, head_dim] of its page.
  constexpr uint16_t* digest_of(uint32_t kv_head, uint32_t row) const {
    return digests + digest_index(kv_head, row) * digest_elements(digest, head_dim);
  }
  constexpr const uint16_t* keys_of(uint32_t kv_head, uint32_t row) const {
    return pool + slots[size_t{kv_head} * capacity + row] * page_elements();
  }
};

struct OpContext {
  ThreadPool* pool = nullptr;
  std::byte* scratch = nullptr;  // the backend's, at least scratch_bytes(shapes) bytes, 64-byte aligned
  uint64_t scratch_bytes = 0;
  void* stream = nullptr;  // of a device backend: the stream that its ops are enqueued in
};

// x[i] = row tokens[i] of the embedding table, decoded, times `scale`.
struct EmbedArgs {
  float* x;               // out [n_tok, n_cols]
  Weight table;           // [vocab_size, d_model]
  const int32_t* tokens;  // [n_tok]
  uint32_t n_tok;
  float scale = 1.0f;
};

// y = x / sqrt(mean(x^2) + eps) * weight, row by row, or y += that. y may be x.
struct RmsNormArgs {
  float* y;             // out [n_tok, n]
  const float* x;       // [n_tok, n]
  const float* weight;  // [n]
  uint32_t n_tok, n;
  float eps;
  bool accumulate = false;
};

// One output of a matmul: y = W x (+ bias), or y += W x (+ bias).
struct MatmulPart {
  Weight w;           // [n_rows, n_cols]
  const float* bias;  // [n_rows] or null
  float* y;           // [n_tok, n_rows], row-major
  bool accumulate;
};

// Up to three matrices applied to the same input in one parallel region (q, k and v).
struct MatmulArgs {
  MatmulPart part[3];
  uint32_t n_parts;
  const float* x;  // [n_tok, n_cols], shared by the parts; no y may overlap it
  uint32_t n_tok;
};

// The activation of a gated product.
enum class Gate : uint8_t {
  kSilu,  // g * sigmoid(g)
  kGelu,  // tanh approximation: g / 2 * (1 + tanh u) = g * sigmoid(2 u), u = sqrt(2 / pi) * (g + 0.044715 g^3)
  // SwiGLU of clamped inputs: g' * sigmoid(kClampedSteepness * g') * (u' + 1) with g' = min(g, kClampedMax) and u' = u
  // clamped to [-kClampedMax, kClampedMax]
  kClamped,
};
inline constexpr float kClampedMax = 7.0f, kClampedSteepness = 1.702f;
inline constexpr float kGelu1 = 1.59576912160573f, kGelu3 = 0.0713548162726009f;  // 2 u = kGelu1 * g + kGelu3 * g^3

// y = activation(Wg x (+ bias)) * (Wu x (+ bias)).
struct GluMatmulArgs {
  float* y;         // out [n_tok, n_rows]
  Weight gate, up;  // [n_rows, n_cols], both of one type or of two
  const float* x;   // [n_tok, n_cols]
  uint32_t n_tok;
  Gate activation = Gate::kSilu;
  const float* gate_bias = nullptr;  // [n_rows] or null
  const float* up_bias = nullptr;
};

// How the weights of a token's chosen experts follow from the router's logits.
enum class RouteRule : uint8_t {
  kChosen,  // softmax over the chosen: what softmax over all, divided by the sum over the chosen, comes to
  kAll,     // softmax over all, so that the weights of the chosen add up to less than 1
};

// One matrix [n_rows, n_cols] per expert, one below the other, and their biases.
struct ExpertStack {
  Weight w;                     // [n_experts * n_rows, n_cols]
  const float* bias = nullptr;  // [n_experts, n_rows] or null
};

// Mixture of experts (docs/algorithms.md, "Mixture of experts"). Per token the n_used experts with the largest router
// logits are chosen, the lower index first of equals; NaN counts as -inf. Each is a gated feed-forward network, and
//   y += sum over the chosen of weight * (Wd (activation(Wg x (+ bias)) * (Wu x (+ bias))) (+ bias))
// plus, with a shared expert, sigmoid(shared_router . x) times the same of the shared matrices, which have no biases.
struct ExpertsArgs {
  float* y;        // in/out [n_tok, d_model]; not x
  const float* x;  // [n_tok, d_model]
  uint32_t n_tok;
  uint32_t n_experts, n_used;  // 1 <= n_used <= n_experts, at most kMaxExperts and kMaxExpertsUsed
  RouteRule rule;
  Gate activation;
  const float* router;                      // [n_experts, d_model]
  const float* router_bias;                 // [n_experts] or null
  ExpertStack gate, up;                     // d_ff rows, d_model columns
  ExpertStack down;                         // d_model rows, d_ff columns
  const float* shared_router = nullptr;     // [d_model]; null: no shared expert
  Weight shared_gate = {}, shared_up = {};  // [shared_ff, d_model]
  Weight shared_down = {};                  // [d_model, shared_ff]
};
inline constexpr uint32_t kMaxExperts = 1024, kMaxExpertsUsed = 64;

// Matrix `expert` of a stack.
constexpr Weight expert_of(const Weight& stack, uint32_t n_experts, uint32_t expert) {
  Weight w = stack;
  w.n_rows = stack.n_rows / n_experts;
  w.data = stack.data + size_t{expert} * w.n_rows * stack.row_bytes;
  return w;
}

// Chooses a token's experts from its logits [n_experts]: their indices in ascending order, and their weights. A NaN or
// a positive infinity among the logits that a weight depends on makes it NaN. lib/ops/experts_ref.cpp.
void choose_experts(const float* logits, uint32_t n_experts, uint32_t n_used, RouteRule rule, uint32_t* ids,
                    float* weights);

// Which elements of a head rotate together: (2i, 2i+1), or (i, i + rope_dim/2).
enum class RopeLayout : uint8_t { kAdjacent, kHalfSplit };

// Rotations of one model, at most: layers may have one of their own.
inline constexpr uint32_t kMaxRotations = 2;

// Optional per-head RMS norm of q and k, rotation of both, and storing of k and v (rounded to bf16, nearest even) in
// the pages. With kMinMax digests the maxima and minima are updated with the stored keys; a page's first token
// initialises them.
struct RopeAppendArgs {
  float* q;             // in/out [n_tok, n_heads, head_dim]: rotated with cos_sin
  float* q_sink;        // out, the same shape: q rotated with cos_sin_sink instead; null: not computed
  float* k;             // in/out [n_tok, n_kv_heads, head_dim]: rotated
  const float* v;       // [n_tok, n_kv_heads, head_dim]
  const float* q_norm;  // [head_dim] or null
  const float* k_norm;  // [head_dim] or null
  float norm_eps;
  const float* cos_sin;       // [n_tok, rope_dim / 2, 2]
  const float* cos_sin_sink;  // the same shape, or null
  uint32_t rope_dim;          // even, <= head_dim; elements beyond it are not rotated
  RopeLayout layout;
  uint32_t n_tok, n_heads;
  uint32_t pos;  // position of the first of the n_tok tokens
  KvView kv;
  // [n_kv_heads] table row that holds position `pos`; later tokens follow in this row and the next ones.
  const uint32_t* append_row;
};

// A logit under a soft cap; 0: none.
inline float soft_capped(float logit, float cap) { return cap == 0.0f ? logit : cap * std::tanh(logit / cap); }

// Attention over more pages than one call sees: the pages come in parts, ascending, each a multiple of kSplitPages but
// the last. Between the calls AttnPagedArgs::out and the carry hold what the backend needs. On the CPU, with heads of a
// multiple of 8, the result has the bits of one call of several rows over all pages.
struct AttnCarry {
  float* high;                // in/out [n_tok, n_heads] maximum of the logits so far; on a GPU the log-sum-exp
  float* sum;                 // in/out [n_tok, n_heads] of exp(logit - high)
  bool first, last;           // part
  float* part_out = nullptr;  // [n_tok, n_heads, head_dim] room for the output of a part, on a GPU
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
  const AttnCarry* carry = nullptr;  // without select, q_sink and page_mass; null: this call sees all pages
};

inline bool has_own_window(const AttnPagedArgs& a, uint32_t kv_head) {
  return a.head_windows != nullptr && a.head_windows[kv_head] != 0;
}
// The arguments as one head's: with its window, if it has one of its own.
inline AttnPagedArgs args_of_head(const AttnPagedArgs& a, uint32_t kv_head) {
  AttnPagedArgs own = a;
  if (!has_own_window(a, kv_head)) return own;
  own.window = a.head_windows[kv_head];
  own.n_sink = a.head_sinks;
  return own;
}

// Digests of the sealed pages among the `n_rows` table rows from first_row[kv_head] on, for kinds that need whole
// pages.
struct PageDigestArgs {
  KvView kv;
  const uint32_t* first_row;  // [n_kv_heads]
  uint32_t n_rows;            // rows beyond n_pages, and pages that are not full, are skipped
};

// Estimate of q.k over each page from its digest, unscaled (docs/algorithms.md, "Digests and their estimates"). One
// query row.
// kMinMax: Quest's bound sum_i max(q_i * max_i, q_i * min_i); kCuboidMean: the same formula; kSphereMean: q.c + rho *
// |q|; kCentroid: q.mean; kMeanStd: q.mean + spread * sqrt(sum_i q_i^2 std_i^2).
// The last row has an estimate with kMinMax, or if its page is full; otherwise it gets -inf.
struct PageScoreArgs {
  float* score;    // out [n_heads, capacity], table rows in use
  const float* q;  // [n_heads, head_dim]
  KvView kv;
  uint32_t n_heads;
  float spread;  // kMeanStd: standard deviations above the mean
};

// How the estimates of a group's query heads become one score (docs/algorithms.md, "How the heads of a group agree").
// Probabilities are compared by their logarithms, because most of them are below the smallest float: estimates from
// digests are loose.
enum class AggMode : uint8_t { kSumProb, kMaxProb, kMeanRaw, kMaxRaw, kQHead, kMaxZ };

// Whether the group's score is the mean over its heads.
constexpr bool agg_is_mean(AggMode agg) {
  switch (agg) {
    case AggMode::kMeanRaw:
    case AggMode::kQHead:
      return true;
    case AggMode::kSumProb:
    case AggMode::kMaxProb:
    case AggMode::kMaxRaw:
    case AggMode::kMaxZ:
      return false;
  }
  return false;
}

// Top-k page selection by estimate (docs/algorithms.md, "Quest"). The pages of a stream with any of `candidate_flags`
// (0: all pages) compete for `budget` pages; the other pages are all listed as well. The last row (the open page), the
// first n_sink_pages rows and pages with kPageKept are always listed, and count in the budget if they compete. The
// estimate of the last row is not read. Ties go to the lower row. A NaN estimate counts as -inf.
struct PageSelectArgs {
  const float* score;  // [n_heads, capacity] unscaled estimates
  // Out [n_kv_heads, capacity]: score of the group (logarithms for kSumProb and kMaxProb, the mean of the estimates for
  // kQHead); 0 for pages that do not compete and for the last one.
  float* group_score;
  uint32_t* select;         // out [n_lists, capacity] ascending rows; n_lists is n_heads for kQHead, else n_kv_heads
  uint32_t* n_select;       // out [n_lists]
  const uint32_t* flags;    // [n_kv_heads, capacity] kPage*
  const uint32_t* n_pages;  // [n_kv_heads]
  uint32_t capacity, n_heads, n_kv_heads;
  float scale;  // of the logits, for the softmax of kSumProb and kMaxProb
  AggMode agg;
  uint32_t budget;  // pages, at least 1
  uint32_t candidate_flags;
  uint32_t n_sink_pages;
};

// How a page's score follows from the attention weights of a step (docs/algorithms.md, "H2O" and "TOVA").
enum class AccumulateRule : uint8_t {
  kSum,          // score += the sum over the group's heads
  kLatestGroup,  // score = mean over the group's heads, divided by the page's tokens
  // score = mean over all heads of the layer, divided by the page's tokens; all streams of the layer must hold the same
  // pages.
  kLatestLayer,
};

struct PageAccumulateArgs {
  const float* weight;      // [n_heads, capacity] attention mass of each row
  float* score;             // in/out [n_kv_heads, capacity]
  const uint32_t* len;      // [n_kv_heads, capacity] tokens of each page
  const uint32_t* n_pages;  // [n_kv_heads]
  uint32_t capacity, n_heads, n_kv_heads;
  AccumulateRule rule;
  // With `mark`, every stream whose table is full gets one mark more at the page with the least score among those that
  // may leave (not the last row, no kPageStays), the lower row among equals. A NaN score counts as -inf.
  const uint32_t* flags = nullptr;  // [n_kv_heads, capacity] kPage*; read only with `mark`
  uint32_t* mark = nullptr;         // in/out [n_kv_heads, capacity]; null: no marks
};

// Attention weights of each token, summed over some query rows and the heads of a group: the observation window of
// prompt policies, and H2O's column sums (docs/algorithms.md, "H2O" and "SnapKV"). A row at position t sees tokens up
// to t, with a window only those at positions > t - window.
struct TokenMassArgs {
  float* mass;       // out [n_kv_heads, capacity * kPageTokens], tokens in use; not written beyond a page's len
  const float* q;    // [n_rows, n_heads, head_dim]
  const float* lse;  // [n_rows, n_heads], as attn_paged gave them
  KvView kv;
  uint32_t n_rows, n_heads;
  uint32_t pos;  // position of the first query row
  float scale;
  uint32_t window = 0;    // 0: none
  float soft_cap = 0.0f;  // as in AttnPagedArgs, whose lse has the sinks in it
};

// Flags of a page in its stream's table.
enum : uint32_t {
  kPagePinned = 1,  // must not be evicted
  kPagePrompt = 2,  // holds at least one prompt token
  kPageKept = 4,    // pinned by the application: must not be evicted, is always attended
};
inline constexpr uint32_t kPageStays = kPagePinned | kPageKept;

enum class StampRule : uint8_t { kTopR, kAlpha };

// Whether pages above a threshold are stamped, by the maximum over the group's heads; else the best ones, by the mean.
constexpr bool stamps_by_threshold(StampRule rule) {
  switch (rule) {
    case StampRule::kTopR:
      return false;
    case StampRule::kAlpha:
      return true;
  }
  return false;
}

// RaaS stamping of one layer (docs/algorithms.md, "RaaS"). Per stream, W[p] is the mean (kTopR) or maximum (kAlpha) of
// the group's weights. The ceil(r * m) best of the m ranked pages, or the pages with W > alpha, get stamp `now`; so
// does always the last row (the open page). last_score = W. Ties go to the lower row.
struct PageStampArgs {
  // [n_heads, capacity] probabilities over the stream's pages, indexed by table row or, with `select`, by list index.
  const float* weight;
  // [n_kv_heads, capacity] table rows of the weights, ascending; the other rows have weight 0; null: all rows.
  const uint32_t* select;
  const uint32_t* n_select;  // [n_kv_heads]; null with select
  uint32_t* stamp;           // in/out [n_kv_heads, capacity]
  float* last_score;         // out [n_kv_heads, capacity]
  const uint32_t* flags;     // [n_kv_heads, capacity] kPage*
  const uint32_t* n_pages;   // [n_kv_heads]
  uint32_t capacity, n_heads, n_kv_heads;
  uint32_t now;
  StampRule rule;
  bool rank_all;  // rank pinned pages too (rank_scope ALL)
  float r, alpha;
};

// attn_paged of one query row over all resident pages, followed by page_stamp with its masses: the attention of a
// decode step of a policy that stamps by exact masses.
struct AttnStampArgs {
  AttnPagedArgs attn;   // n_tok is 1, select is null, page_mass is not
  PageStampArgs stamp;  // weight is attn.page_mass, select is null; its tables are those of attn.kv
};

// When attention that takes the most important pages first has seen enough (docs/algorithms.md, "PSA").
struct AttnStop {
  const float* rank = nullptr;      // [n_kv_heads, capacity] importance of each row; NaN counts as -inf
  const uint32_t* flags = nullptr;  // [n_kv_heads, capacity] kPage*
  // [n_heads, capacity] true upper bounds of q.k over each page, unscaled, for all rows in use. What is left is then at
  // most what they say, and the lists must hold all rows. Null: each page that is left has at most as much as the least
  // full page so far.
  const float* bound = nullptr;
  uint32_t n_sink_pages = 0;  // first rows that are taken first
  uint32_t microbatch = 0;    // pages that are attended before the next look, 1..kSplitPages; 0: does not stop
  float eps = 1.0f;           // enough is a share of more than this; 1 or more: nothing is
  // > 0: instead enough is this number of pages one after the other of which none had more than quiet_share of what had
  // been seen with it. eps and bound are not used then.
  uint32_t quiet_pages = 0;
  float quiet_share = 0.0f;
};

// Pages of attention that stops, some of which may not be in the pool. Per KV head: want() what is attended next,
// load() it, attend it; settle() when all KV heads have loaded. load() and read_ahead() may run for several KV heads at
// the same time, while nothing else does.
class PageSource {
 public:
  // Gives the rows [n] that are attended next slots, and drops those that are lost from the list; returns how many are
  // left. The rows keep their slots until the next call for this KV head, and so do the rows `ahead` [n_ahead], which
  // may be wanted then, if they have one.
  virtual uint32_t want(uint32_t kv_head, uint32_t* rows, uint32_t n, const uint32_t* ahead, uint32_t n_ahead) = 0;
  // Reads those that were not in the pool, and drops those that cannot be read; returns how many are left.
  virtual uint32_t load(uint32_t kv_head, uint32_t* rows, uint32_t n) = 0;
  virtual void settle(uint32_t kv_head) = 0;
  // Reads the rows `ahead` of the last want(), in case they are wanted.
  virtual void read_ahead(uint32_t kv_head) = 0;

 protected:
  ~PageSource() = default;
};

// Attention of one query row over the listed pages in order of importance: the last row, the first n_sink_pages and
// pages with kPageKept (the forced ones, by row), then the others by rank, the lower row first of equals. After each
// page every head of a KV head's group has the sum S of exp(logit) over what it has seen, and an estimate R of the sum
// over the rows that are left, listed or not; a head is done once S / (S + R) > eps. R is the number of rows left times
// the least sum of a full page that is not forced, and there is none before such a page; with AttnStop::bound it is the
// sum of len * exp(bound) over the rows left. With quiet_pages a head is done instead after so many pages in a row of
// which each had at most quiet_share * S. After a microbatch in which the last head of the group was done, or that had
// the last listed page, the list becomes the pages taken, ascending, over which `attn.out` is the softmax's mean.
struct AttnProgressiveArgs {
  AttnPagedArgs attn;  // n_tok is 1; select, n_select, q_sink, lse and carry are null, window is 0, no list_per_head
  uint32_t* select;    // in/out [n_kv_heads, capacity] table rows, in: ascending; the end of a list is overwritten
  uint32_t* n_select;  // in/out [n_kv_heads], at least 1
  AttnStop stop;
  // Null: all listed pages are in the pool. Otherwise pages that it drops are neither attended nor listed; they count
  // as left, but not in sums of bounds.
  PageSource* source = nullptr;
};

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

// Writes a layer's tables from the last query rows of a prompt: a steady_sum of their attention weights, each row's
// over the tokens that are no sinks. Fewer rows than HistoryRules::n_rows leave a part of what was learned before. Adds
// up keys and values that are not summed yet.
struct HistoryBeginArgs {
  const float* q;  // [n_rows, n_heads, head_dim]
  KvView kv;       // as in AttnHistoryArgs
  uint32_t n_rows, n_heads;
  uint32_t pos;  // position of the first row; the last row is the last token
  float scale, soft_cap;
  HistoryView history;
  HistoryRules rules;
  uint32_t candidates;  // as HistorySize::candidates
};

// Output logits under a soft cap, in place: x = cap * tanh(x / cap).
struct SoftCapArgs {
  float* x;  // in/out [n]
  uint32_t n;
  float cap;  // not 0
};

#define WEIR_OP(name, Args)                              \
  using name##_fn = Status (*)(OpContext&, const Args&); \
  namespace ref {                                        \
  Status name(OpContext& cx, const Args& a);             \
  }
#include "ops/ops.inc"
#undef WEIR_OP

struct OpTable {
#define WEIR_OP(name, Args) name##_fn name = nullptr;
#include "ops/ops.inc"
#undef WEIR_OP
};

// Largest sizes that a session asks of its ops.
struct OpShapes {
  uint32_t n_threads = 1;
  uint32_t max_tok = 1;   // rows of one call
  uint32_t max_cols = 0;  // longest matmul input: max(d_model, d_ff, n_heads * head_dim, expert_ff, shared_ff)
  uint32_t max_rows = 0;  // most outputs of a matmul: max(vocab_size, d_ff, ...)
  uint32_t n_heads = 0, n_kv_heads = 0, head_dim = 0;
  uint32_t max_pages = 0;                      // most pages of a stream
  uint32_t d_model = 0;                        // read where there are experts
  uint32_t n_experts = 0, n_experts_used = 0;  // 0: none
  uint32_t history_tokens = 0;                 // most tokens of a history, sinks included; 0: there is none
  uint32_t expert_ff = 0, shared_ff = 0;       // rows of an expert's gate, and of the shared expert's; 0: none
};

struct Backend {
  const char* name;  // "cpu", "reference"
  int32_t device;    // WEIR_DEVICE_*
  OpTable ops;
  uint64_t (*scratch_bytes)(const OpShapes& shapes);
  const char* (*target)();  // instruction set or device, static text
  TraitSet traits;          // what its models may do beyond the plain layer
};

const Backend& reference_backend();
const Backend& cpu_backend();

}  // namespace weir
