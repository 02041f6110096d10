// Attention over single tokens of the listed pages: all logits of a stream's list, unit by unit; the best tokens by
// what the group's heads give to them; then the softmax and the values of these alone, by pointers to rows. A KV head
// is one unit of work. Keys are read once, values only of the tokens that are attended.
//
// Numerics: f32; sums over tokens in list order. Results depend on the vector length, not on threads.
#include "cpu/attn_tokens.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/attn_history_parts.h"
#include "cpu/attn_paged_parts.h"
#include "cpu/simd_targets.h"
#include "cpu/top_keys.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/attn_tokens.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "cpu/attn_gather-inl.h"
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

#ifndef WEIR_CPU_ATTN_TOKENS_ONCE_
#define WEIR_CPU_ATTN_TOKENS_ONCE_
namespace weir::cpu {

// Scratch of one thread.
struct TokenScratch {
  float* q;        // [n_heads, d_pad] permuted and scaled
  float* unit;     // [group, kUnitTokens] logits of a unit
  float* weight;   // [group, stride] logits of all listed tokens, then weights
  float* share;    // [stride] weights of one head
  float* score;    // [stride] of the group
  uint32_t* key;   // [stride] order of the scores; 0: not seen
  uint32_t* used;  // [stride] tokens that are picked; then those that are attended, and not of an open page
  TokenRow* rows;  // [stride]
  float* out;      // [group, d_pad] permuted
  float* total;    // [group] sums of weights
  size_t stride, d_pad;
};

inline TokenScratch lay_out_tokens(Arena& arena, uint64_t n_heads, uint64_t group, uint64_t head_dim,
                                   uint64_t n_pages) {
  TokenScratch s;
  s.stride = align_up(n_pages, kSplitPages) * kPageTokens + kVectorPad;
  s.d_pad = align_up(head_dim, kRowPad);
  s.q = arena.take<float>(n_heads * s.d_pad);
  s.unit = arena.take<float>(group * kUnitTokens);
  s.weight = arena.take<float>(group * s.stride);
  s.share = arena.take<float>(s.stride);
  s.score = arena.take<float>(s.stride);
  s.key = arena.take<uint32_t>(s.stride);
  s.used = arena.take<uint32_t>(s.stride);
  s.rows = arena.take<TokenRow>(s.stride);
  s.out = arena.take<float>(group * s.d_pad);
  s.total = arena.take<float>(group);
  return s;
}

inline uint64_t token_scratch_stride(uint64_t n_heads, uint64_t group, uint64_t head_dim, uint64_t n_pages) {
  Arena arena;
  lay_out_tokens(arena, n_heads, group, head_dim, n_pages);
  return align_up(arena.used(), kCacheLine);
}

// One stream; a is that of its KV head.
struct TokenJob {
  const AttnPagedArgs& a;
  const TokenScratch& s;
  uint32_t kv_head;
  uint32_t n;  // listed pages

  uint32_t group() const { return a.n_heads / a.kv.n_kv_heads; }
  float* weight(uint32_t g) const { return s.weight + g * s.stride; }
  uint32_t row(uint32_t listed) const {
    return a.select != nullptr ? a.select[size_t{kv_head} * a.kv.capacity + listed] : listed;
  }
};

}  // namespace weir::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {

#if WEIR_CPU_HAS_VECTORS

// All logits; tokens that are not seen have kUnseen.
void list_logits(const TokenJob& job) {
  permute_queries(job.a, job.s.d_pad, job.s.q);
  for (uint32_t first = 0; first < job.n; first += kSplitPages) {
    const uint32_t n = HWY_MIN(kSplitPages, job.n - first);
    unit_logits(job.a, job.s.q, job.s.d_pad, job.kv_head, first, n, job.s.unit);
    for (uint32_t g = 0; g < job.group(); ++g) {
      std::copy_n(job.s.unit + g * kUnitTokens, size_t{n} * kPageTokens, job.weight(g) + size_t{first} * kPageTokens);
    }
  }
}

// out = exp(logit - the highest) of n logits; returns that, and the sum at `sum`: NaN if one of them is, of which Exp
// makes 0. Vectors reach beyond n.
float exp_all(float* x, size_t n, float* out, float& sum) {
  const DF df;
  V top = hn::Set(df, kUnseen);
  std::fill_n(x + n, kLanes, kUnseen);
  for (size_t i = 0; i < n; i += kLanes) top = hn::Max(top, hn::LoadU(df, x + i));
  const float high = hn::GetLane(hn::MaxOfLanes(df, top));
  const V base = hn::Set(df, high == kUnseen ? 0.0f : high);
  V all = hn::Zero(df);
  for (size_t i = 0; i < n; i += kLanes) {
    const V logit = hn::LoadU(df, x + i), w = hn::Exp(df, hn::Sub(logit, base));
    hn::StoreU(w, df, out + i);
    all = hn::Add(all, hn::IfThenElse(hn::IsNaN(logit), logit, w));
  }
  sum = hn::GetLane(hn::SumOfLanes(df, all));
  return high;
}

void add_scaled(const float* x, size_t n, float factor, float* to) {
  const DF df;
  for (size_t i = 0; i < n; i += kLanes)
    hn::StoreU(hn::MulAdd(hn::LoadU(df, x + i), hn::Set(df, factor), hn::LoadU(df, to + i)), df, to + i);
}

// s.out = the weighted values of the tokens in `used`, and of an open page at listed place `open` (UINT32_MAX: none).
void sum_values(const TokenJob& job, size_t n_used, uint32_t open) {
  const TokenScratch& s = job.s;
  sum_rows(job.a.kv, job.group(), s.weight, s.stride, s.used, n_used, s.rows, s.out, s.d_pad);
  if (open == UINT32_MAX) return;
  const ListedPage page = listed_page(job.a, job.kv_head, open);
  const RowShape shape(job.a.kv.head_dim);
  for (uint32_t g = 0; g < job.group(); ++g) {
    std::fill_n(s.unit, kUnitTokens, 0.0f);
    std::copy_n(job.weight(g) + size_t{open} * kPageTokens, kPageTokens, s.unit);
    page_values<1, RowFormat::kBf16>(shape, s.unit, page.values, 0, 0, page.len, s.out + g * s.d_pad, s.d_pad);
  }
}

void store_result(const TokenJob& job, uint32_t g, float factor) {
  const size_t d = job.a.kv.head_dim;
  store_head(d, job.s.out + g * job.s.d_pad, factor, job.a.out + (size_t{job.kv_head} * job.group() + g) * d);
}

#else

void list_logits(const TokenJob&) {}
float exp_all(float*, size_t, float*, float& sum) { return sum = 0.0f; }
void add_scaled(const float*, size_t, float, float*) {}
void sum_values(const TokenJob&, size_t, uint32_t) {}
void store_result(const TokenJob&, uint32_t, float) {}

#endif

}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {
namespace {

HWY_EXPORT(list_logits);
HWY_EXPORT(exp_all);
HWY_EXPORT(add_scaled);
HWY_EXPORT(sum_values);
HWY_EXPORT(store_result);

// Adds up what the heads give to each token. False: of a logit that is no number, nothing can be told.
bool add_shares(const TokenJob& job, size_t n) {
  const TokenScratch& s = job.s;
  std::fill_n(s.score, s.stride, 0.0f);
  for (uint32_t g = 0; g < job.group(); ++g) {
    float sum = 0.0f;
    (void)HWY_DYNAMIC_DISPATCH(exp_all)(job.weight(g), n, s.share, sum);
    if (!std::isfinite(sum)) return false;
    if (sum > 0.0f) HWY_DYNAMIC_DISPATCH(add_scaled)(s.share, n, 1.0f / sum, s.score);
  }
  return true;
}

// Marks the tokens that are attended: those of `key` that are not 0 afterwards. Without scores these are all.
void choose(const TokenJob& job, bool has_scores) {
  const AttnPagedArgs& a = job.a;
  const TokenScratch& s = job.s;
  const uint32_t n_tokens = job.n * kPageTokens;
  uint32_t n_forced = 0, n_others = 0;
  for (uint32_t i = 0; i < job.n; ++i) {
    const uint32_t row = job.row(i), len = a.kv.len[size_t{job.kv_head} * a.kv.capacity + row];
    const bool all = takes_all_tokens(a, job.kv_head, row);
    for (uint32_t t = 0; t < kPageTokens; ++t) {
      uint32_t& key = s.key[i * kPageTokens + t];
      key = t >= len ? 0 : all ? UINT32_MAX : std::max(1u, order_key(s.score[i * kPageTokens + t]));
      n_forced += t < len && all ? 1 : 0;
      n_others += t < len && !all ? 1 : 0;
    }
  }
  if (!has_scores || has_own_window(a, job.kv_head) || n_forced + n_others <= a.tokens.n) return;
  const uint32_t n_best = std::max(a.tokens.n, n_forced);
  uint32_t n_picked = 0;
  for_best(s.key, n_tokens, n_best, [&](uint32_t token) { s.used[n_picked++] = token; });
  uint32_t next = 0;  // not picked: the tokens between those that are
  for (uint32_t i = 0; i < n_picked; ++i) {
    std::fill(s.key + next, s.key + s.used[i], 0u);
    next = s.used[i] + 1;
  }
  std::fill(s.key + next, s.key + n_tokens, 0u);
}

// The rows of what is attended, but for an open page, whose listed place is returned.
uint32_t list_rows(const TokenJob& job, size_t& n_used) {
  const KvView& kv = job.a.kv;
  uint32_t open = UINT32_MAX;
  n_used = 0;
  for (uint32_t i = 0; i < job.n; ++i) {
    const uint32_t row = job.row(i);
    if (kv.is_open(job.kv_head, row)) {
      open = i;
      continue;
    }
    const uint16_t* const page = kv.page_of(job.kv_head, row);
    for (uint32_t t = 0; t < kPageTokens; ++t) {
      const uint32_t token = i * kPageTokens + t;
      job.s.rows[token] = {page, t};
      if (job.s.key[token] != 0) job.s.used[n_used++] = token;
    }
  }
  return open;
}

void attend_stream(const TokenJob& job) {
  const AttnPagedArgs& a = job.a;
  const TokenScratch& s = job.s;
  const size_t n = size_t{job.n} * kPageTokens;
  HWY_DYNAMIC_DISPATCH(list_logits)(job);
  choose(job, add_shares(job, n));
  size_t n_used = 0;
  const uint32_t open = list_rows(job, n_used);
  for (uint32_t g = 0; g < job.group(); ++g) {
    float* const weight = job.weight(g);
    for (size_t i = 0; i < n; ++i) weight[i] = s.key[i] == 0 ? -std::numeric_limits<float>::infinity() : weight[i];
    const uint32_t head = job.kv_head * job.group() + g;
    float sum = 0.0f;
    float high = HWY_DYNAMIC_DISPATCH(exp_all)(weight, n, weight, sum);
    s.total[g] = sum;
    if (a.sinks != nullptr) {
      // The sink may be far above all tokens.
      const float more = std::max(high, a.sinks[head]), shrink = std::exp(high - more);
      for (size_t i = 0; i < n; ++i) weight[i] *= shrink;
      s.total[g] = sum * shrink + std::exp(a.sinks[head] - more);
      high = more;
    }
    if (a.lse != nullptr) a.lse[head] = high + std::log(s.total[g]);
    if (a.page_mass == nullptr) continue;
    float* const mass = a.page_mass + size_t{head} * a.kv.capacity;
    for (uint32_t p = 0; p < job.n; ++p) {
      float of_page = 0.0f;
      for (uint32_t t = 0; t < kPageTokens; ++t) of_page += weight[p * kPageTokens + t];
      mass[p] = of_page / s.total[g];
    }
  }
  HWY_DYNAMIC_DISPATCH(sum_values)(job, n_used, open);
  for (uint32_t g = 0; g < job.group(); ++g) HWY_DYNAMIC_DISPATCH(store_result)(job, g, 1.0f / s.total[g]);
}

}  // namespace

uint64_t attn_tokens_scratch_bytes(const OpShapes& s) {
  if (s.token_pages == 0) return 0;
  return s.n_threads * token_scratch_stride(s.n_heads, s.n_heads / s.n_kv_heads, s.head_dim, s.token_pages);
}

Status attn_tokens(OpContext& cx, const AttnPagedArgs& a) {
  const uint32_t group = a.n_heads / a.kv.n_kv_heads;
  uint32_t most = 0;
  for (uint32_t kv_head = 0; kv_head < a.kv.n_kv_heads; ++kv_head) most = std::max(most, n_listed(a, kv_head));
  const uint64_t stride = token_scratch_stride(a.n_heads, group, a.kv.head_dim, most);
  if (stride * cx.pool->n_threads() > cx.scratch_bytes)
    return fail(WEIR_ERR_INTERNAL, "attention over tokens: %u pages are too many", most);
  cx.pool->parallel_for(a.kv.n_kv_heads, [&](size_t task, size_t worker) {
    const auto kv_head = static_cast<uint32_t>(task);
    Arena arena(cx.scratch + worker * stride, stride);
    const TokenScratch s = lay_out_tokens(arena, a.n_heads, group, a.kv.head_dim, most);
    attend_stream({args_of_head(a, kv_head), s, kv_head, n_listed(a, kv_head)});
  });
  return {};
}

}  // namespace weir::cpu
#endif  // HWY_ONCE
