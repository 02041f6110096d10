// Attention of one query row. Work items are (kv head, unit of kSplitPages pages); all query heads of the group share what is read. Bound by
// memory: each key and value is read once, widened from bf16 by a shift or a mask, and multiplied in f32.
//
// Numerics: f32. The sum of q.k runs over the vectors of a row and then pairwise over lanes; sums over tokens run in list order. So the bits
// of a result depend on the listed pages and on the vector length, not on threads or on where pages lie.
// Paper: Dao et al., "Flash-Decoding for long-context inference" (2023): partial softmax per split, merged by log-sum-exp.
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "cpu/attn_paged_parts.h"
#include "cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/attn_paged_decode.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "cpu/simd-inl.h"
#include "hwy/cache_control.h"
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {

#if WEIR_CPU_HAS_VECTORS

using DF = hn::ScalableTag<float>;
using V = hn::Vec<DF>;
constexpr size_t kLanes = HWY_LANES(float);
constexpr size_t kBlock = 2 * kLanes;  // elements that become one vector of even and one of odd elements
constexpr bool kManyRegisters = HWY_TARGET <= HWY_AVX3 || HWY_TARGET == HWY_NEON;
constexpr float kUnseen = -std::numeric_limits<float>::infinity();

// A row of bf16 [d], read block by block; the last block may be partial.
struct RowShape {
  explicit RowShape(size_t head_dim)
      : d(head_dim), n_full(head_dim / kBlock), tail(head_dim % kBlock != 0), tail_mask(hn::FirstN(hn::RebindToUnsigned<DF>(), head_dim % kBlock / 2)) {}
  size_t d;
  size_t n_full;
  bool tail;
  hn::Mask<hn::RebindToUnsigned<DF>> tail_mask;
};

// Even and odd elements of a block. Where vectors have at most 4 lanes there is no partial block, so a masked load reads nothing beyond it.
template <bool kTail>
HWY_INLINE void load_block(const RowShape& shape, const uint16_t* from, V& even, V& odd) {
  const DF df;
  const hn::RebindToUnsigned<DF> du;
  const hn::Repartition<uint16_t, DF> d16;
  hn::Vec<decltype(du)> pairs;
  if constexpr (kTail) {
    pairs = hn::MaskedLoad(shape.tail_mask, du, reinterpret_cast<const uint32_t*>(from));
  } else {
    pairs = hn::BitCast(du, hn::LoadU(d16, from));
  }
  even = hn::BitCast(df, hn::ShiftLeft<16>(pairs));
  odd = hn::BitCast(df, hn::And(pairs, hn::Set(du, 0xFFFF0000u)));
}

// Lane i of the result is the sum of the lanes of v[i], for a power of two of vectors; each sum is pairwise, whatever its place.
template <size_t kCount>
HWY_INLINE V sums_of(V* v) {
  const DF df;
  if constexpr (kCount > 1) {
    HWY_UNROLL(8)
    for (size_t i = 0; i < kCount / 2; ++i) {
      v[i] = hn::Add(hn::ConcatEven(df, v[2 * i + 1], v[2 * i]), hn::ConcatOdd(df, v[2 * i + 1], v[2 * i]));
    }
    return sums_of<kCount / 2>(v);
  } else {
    return v[0];
  }
}

// Tokens and heads whose products are summed at the same time: as many sums as registers allow, one per lane of the final vector.
template <size_t kHeads>
struct LogitTile {
  static constexpr size_t kSlots = kHeads == 3 ? 4 : kHeads;
  static constexpr size_t kToks = HWY_MIN(kLanes / kSlots, size_t{8});
  static constexpr size_t kSums = kSlots * kToks;
};

template <size_t kHeads, bool kTail>
HWY_INLINE void add_products(const RowShape& shape, const float* q, size_t d_pad, const uint16_t* const* row, ptrdiff_t ahead, size_t block, V* sum) {
  constexpr size_t kToks = LogitTile<kHeads>::kToks;
  const DF df;
  V even[kHeads], odd[kHeads];
  HWY_UNROLL(4)
  for (size_t h = 0; h < kHeads; ++h) {
    even[h] = hn::Load(df, q + h * d_pad + block * kBlock);
    odd[h] = hn::Load(df, q + h * d_pad + block * kBlock + kLanes);
  }
  HWY_UNROLL(8)
  for (size_t t = 0; t < kToks; ++t) {
    V key_even, key_odd;
    load_block<kTail>(shape, row[t] + block * kBlock, key_even, key_odd);
    hwy::Prefetch(row[t] + block * kBlock + ahead);
    HWY_UNROLL(4)
    for (size_t h = 0; h < kHeads; ++h) sum[h * kToks + t] = hn::MulAdd(key_even, even[h], sum[h * kToks + t]);
    HWY_UNROLL(4)
    for (size_t h = 0; h < kHeads; ++h) sum[h * kToks + t] = hn::MulAdd(key_odd, odd[h], sum[h * kToks + t]);
  }
}

// logit[h * kUnitTokens + t] = q_h . k_t for tokens [begin, end) of a page. What lies `ahead` elements further is needed next: pages are too
// short, and too far from each other, for the processor to notice by itself.
template <size_t kHeads>
HWY_NOINLINE void page_logits(const RowShape& shape, const float* q, size_t d_pad, const uint16_t* keys, ptrdiff_t ahead, uint32_t begin, uint32_t end,
                              float* logit) {
  constexpr size_t kToks = LogitTile<kHeads>::kToks, kSums = LogitTile<kHeads>::kSums;
  const DF df;
  for (size_t t = begin; t < end; t += kToks) {
    const uint16_t* row[kToks];
    HWY_UNROLL(8)
    for (size_t i = 0; i < kToks; ++i) row[i] = keys + HWY_MIN(t + i, size_t{end} - 1) * shape.d;  // beyond the end: computed and dropped
    V sum[kSums];
    HWY_UNROLL(16)
    for (size_t i = 0; i < kSums; ++i) sum[i] = hn::Zero(df);
    for (size_t b = 0; b < shape.n_full; ++b) add_products<kHeads, false>(shape, q, d_pad, row, ahead, b, sum);
    if (shape.tail) add_products<kHeads, true>(shape, q, d_pad, row, ahead, shape.n_full, sum);
    V sums = sums_of<kSums>(sum);
    for (size_t n = kSums; n < kLanes; n *= 2) sums = hn::Add(hn::ConcatEven(df, sums, sums), hn::ConcatOdd(df, sums, sums));
    HWY_ALIGN float lane[kLanes];
    hn::Store(sums, df, lane);
    for (size_t h = 0; h < kHeads; ++h) {
      float* to = logit + h * kUnitTokens + t;
      if (t + kToks <= end) {
        std::memcpy(to, lane + h * kToks, kToks * sizeof(float));
      } else {
        for (size_t i = 0; t + i < end; ++i) to[i] = lane[h * kToks + i];
      }
    }
  }
}

template <size_t kHeads, size_t kBlocks, bool kTail>
HWY_INLINE void add_values(const RowShape& shape, const float* weight, const uint16_t* values, ptrdiff_t ahead, uint32_t begin, uint32_t end,
                           size_t block, float* out, size_t out_stride) {
  const DF df;
  V sum[kHeads * 2 * kBlocks];
  HWY_UNROLL(16)
  for (size_t i = 0; i < kHeads * 2 * kBlocks; ++i) {
    sum[i] = hn::Load(df, out + i / (2 * kBlocks) * out_stride + block * kBlock + i % (2 * kBlocks) * kLanes);
  }
  for (size_t t = begin; t < end; ++t) {
    V value[2 * kBlocks];
    HWY_UNROLL(4)
    for (size_t b = 0; b < kBlocks; ++b) {
      const uint16_t* from = values + t * shape.d + (block + b) * kBlock;
      load_block<kTail>(shape, from, value[2 * b], value[2 * b + 1]);
      hwy::Prefetch(from + ahead);
    }
    HWY_UNROLL(4)
    for (size_t h = 0; h < kHeads; ++h) {
      const V w = hn::Set(df, weight[h * kUnitTokens + t]);
      HWY_UNROLL(8)
      for (size_t i = 0; i < 2 * kBlocks; ++i) sum[h * 2 * kBlocks + i] = hn::MulAdd(w, value[i], sum[h * 2 * kBlocks + i]);
    }
  }
  HWY_UNROLL(16)
  for (size_t i = 0; i < kHeads * 2 * kBlocks; ++i) {
    hn::Store(sum[i], df, out + i / (2 * kBlocks) * out_stride + block * kBlock + i % (2 * kBlocks) * kLanes);
  }
}

// out_h += sum of weight[h * kUnitTokens + t] * v_t over tokens [begin, end) of a page.
template <size_t kHeads>
HWY_NOINLINE void page_values(const RowShape& shape, const float* weight, const uint16_t* values, ptrdiff_t ahead, uint32_t begin, uint32_t end,
                              float* out, size_t out_stride) {
  constexpr size_t kBlocks = (kManyRegisters ? 2 : 1) * (kHeads <= 2 ? 2 : 1);
  size_t b = 0;
  for (; b + kBlocks <= shape.n_full; b += kBlocks) add_values<kHeads, kBlocks, false>(shape, weight, values, ahead, begin, end, b, out, out_stride);
  for (; b < shape.n_full; ++b) add_values<kHeads, 1, false>(shape, weight, values, ahead, begin, end, b, out, out_stride);
  if (shape.tail) add_values<kHeads, 1, true>(shape, weight, values, ahead, begin, end, b, out, out_stride);
}

// Logits to weights relative to their maximum; page_sum[p] [kSplitPages] is the sum over page p. Returns maximum and sum of all.
HWY_INLINE void softmax_unit(float* weight, uint32_t n_pages, float* page_sum, float& high, float& sum) {
  const DF df;
  V top = hn::Set(df, kUnseen);
  for (size_t i = 0; i < size_t{n_pages} * kPageTokens; i += kLanes) top = hn::Max(top, hn::Load(df, weight + i));
  high = hn::GetLane(hn::MaxOfLanes(df, top));
  const V base = hn::Set(df, high == kUnseen ? 0.0f : high);
  V all = hn::Zero(df);
  for (size_t first = 0; first < n_pages; first += kLanes) {
    V of_page[kLanes];
    for (size_t p = 0; p < kLanes; ++p) {
      of_page[p] = hn::Zero(df);
      if (first + p >= n_pages) continue;
      float* w = weight + (first + p) * kPageTokens;
      for (size_t i = 0; i < kPageTokens; i += kLanes) {
        const V x = hn::Exp(df, hn::Sub(hn::Load(df, w + i), base));
        hn::Store(x, df, w + i);
        of_page[p] = hn::Add(of_page[p], x);
      }
    }
    const V sums = sums_of<kLanes>(of_page);
    hn::Store(sums, df, page_sum + first);
    all = hn::Add(all, sums);
  }
  sum = hn::GetLane(hn::SumOfLanes(df, all));
}

// Calls f<kHeads>(first head) for the heads of a group, up to four at a time.
template <class F>
HWY_INLINE void for_heads(uint32_t group, const F& f) {
  uint32_t g = 0;
  for (; g + 4 <= group; g += 4) f(std::integral_constant<size_t, 4>(), g);
  if (group - g == 3) f(std::integral_constant<size_t, 3>(), g);
  if (group - g == 2) f(std::integral_constant<size_t, 2>(), g);
  if (group - g == 1) f(std::integral_constant<size_t, 1>(), g);
}

void unit_logits(const AttnPagedArgs& a, const DecodeScratch& s, uint32_t kv_head, uint32_t first, uint32_t n, float* weight) {
  const uint32_t group = a.n_heads / a.kv.n_kv_heads;
  const RowShape shape(a.kv.head_dim);
  const float* q = s.q + size_t{kv_head} * group * s.d_pad;
  for (uint32_t p = 0; p < n; ++p) {
    const ListedPage page = listed_page(a, kv_head, first + p);
    // After the last page's keys come the first page's values.
    const uint16_t* next = p + 1 < n ? listed_page(a, kv_head, first + p + 1).keys : listed_page(a, kv_head, first).keys + kPageTokens * shape.d;
    const Seen seen = seen_by(a, page, a.pos);
    const float* page_q = page.takes_sink_query ? q + a.n_heads * s.d_pad : q;
    float* to = weight + p * kPageTokens;
    if (!seen.all()) {
      for (uint32_t g = 0; g < group; ++g) std::fill(to + g * kUnitTokens, to + g * kUnitTokens + kPageTokens, kUnseen);
    }
    for_heads(group, [&](auto heads, uint32_t g) HWY_ATTR {
      constexpr size_t kHeads = decltype(heads)::value;
      const float* from = page_q + g * s.d_pad;
      const ptrdiff_t ahead = g == 0 ? next - page.keys : 0;
      if (seen.sink_end > 0) page_logits<kHeads>(shape, from, s.d_pad, page.keys, ahead, 0, seen.sink_end, to + g * kUnitTokens);
      page_logits<kHeads>(shape, from, s.d_pad, page.keys, ahead, seen.begin, seen.end, to + g * kUnitTokens);
    });
  }
}

void unit_values(const AttnPagedArgs& a, const DecodeScratch& s, uint32_t kv_head, uint32_t unit, uint32_t n, const float* weight) {
  const uint32_t group = a.n_heads / a.kv.n_kv_heads;
  const RowShape shape(a.kv.head_dim);
  const size_t stride = s.max_units * s.d_pad;
  float* part = s.part + (size_t{kv_head} * group * s.max_units + unit) * s.d_pad;
  for (uint32_t g = 0; g < group; ++g) std::fill(part + g * stride, part + g * stride + s.d_pad, 0.0f);
  for (uint32_t p = 0; p < n; ++p) {
    const ListedPage page = listed_page(a, kv_head, unit * kSplitPages + p);
    const uint16_t* values = page.keys + kPageTokens * shape.d;
    const uint16_t* next = p + 1 < n ? listed_page(a, kv_head, unit * kSplitPages + p + 1).keys : page.keys;
    const Seen seen = seen_by(a, page, a.pos);
    const float* from = weight + p * kPageTokens;
    for_heads(group, [&](auto heads, uint32_t g) HWY_ATTR {
      constexpr size_t kHeads = decltype(heads)::value;
      const ptrdiff_t ahead = g == 0 ? next - page.keys : 0;
      if (seen.sink_end > 0) page_values<kHeads>(shape, from + g * kUnitTokens, values, ahead, 0, seen.sink_end, part + g * stride, stride);
      page_values<kHeads>(shape, from + g * kUnitTokens, values, ahead, seen.begin, seen.end, part + g * stride, stride);
    });
  }
}

void decode_unit(const AttnPagedArgs& a, const DecodeScratch& s, uint32_t kv_head, uint32_t unit, size_t worker) {
  const uint32_t group = a.n_heads / a.kv.n_kv_heads;
  const uint32_t first = unit * kSplitPages;
  const uint32_t n = HWY_MIN(kSplitPages, n_listed(a, kv_head) - first);
  float* weight = s.weight + worker * group * kUnitTokens;
  unit_logits(a, s, kv_head, first, n, weight);
  for (uint32_t g = 0; g < group; ++g) {
    const size_t head = size_t{kv_head} * group + g, at = head * s.max_units + unit;
    HWY_ALIGN float page_sum[kSplitPages];
    float high, sum;
    softmax_unit(weight + g * kUnitTokens, n, page_sum, high, sum);
    if (a.page_mass != nullptr) std::memcpy(a.page_mass + head * a.kv.capacity + first, page_sum, n * sizeof(float));
    s.sum[at] = sum;
    s.lse[at] = sum > 0.0f ? high + std::log(sum) : kUnseen;
  }
  unit_values(a, s, kv_head, unit, n, weight);
  const DF df;
  for (uint32_t g = 0; g < group; ++g) {
    const size_t at = (size_t{kv_head} * group + g) * s.max_units + unit;
    if (s.sum[at] == 0.0f) continue;
    const V inverse = hn::Set(df, 1.0f / s.sum[at]);
    for (size_t i = 0; i < s.d_pad; i += kLanes) hn::Store(hn::Mul(hn::Load(df, s.part + at * s.d_pad + i), inverse), df, s.part + at * s.d_pad + i);
  }
}

void permute_queries(const AttnPagedArgs& a, const DecodeScratch& s) {
  const DF df;
  const size_t d = a.kv.head_dim;
  const V scale = hn::Set(df, a.scale);
  for (size_t head = 0; head < (a.q_sink != nullptr ? 2 : 1) * size_t{a.n_heads}; ++head) {
    const float* from = head < a.n_heads ? a.q + head * d : a.q_sink + (head - a.n_heads) * d;
    float* to = s.q + head * s.d_pad;
    size_t i = 0;
    for (; i + kBlock <= d; i += kBlock) {
      V even, odd;
      hn::LoadInterleaved2(df, from + i, even, odd);
      hn::Store(hn::Mul(even, scale), df, to + i);
      hn::Store(hn::Mul(odd, scale), df, to + i + kLanes);
    }
    if (i == d) continue;
    std::fill(to + i, to + i + kBlock, 0.0f);
    for (size_t j = i; j < d; ++j) to[i + (j - i) / 2 + (j % 2) * kLanes] = from[j] * a.scale;
  }
}

// Merges the units of one head and undoes the permutation.
void merge_units(const AttnPagedArgs& a, const DecodeScratch& s, uint32_t head) {
  const DF df;
  const size_t d = a.kv.head_dim;
  const uint32_t listed = n_listed(a, head / (a.n_heads / a.kv.n_kv_heads));
  const size_t n_units = (size_t{listed} + kSplitPages - 1) / kSplitPages;
  const float* part = s.part + head * s.max_units * s.d_pad;
  float* share = s.lse + head * s.max_units;
  const float* sum = s.sum + head * s.max_units;
  float high = kUnseen, total = 0.0f;
  for (size_t u = 0; u < n_units; ++u) high = HWY_MAX(high, share[u]);
  for (size_t u = 0; u < n_units; ++u) total += share[u] = high == kUnseen ? 0.0f : std::exp(share[u] - high);
  const V inverse = hn::Set(df, total > 0.0f ? 1.0f / total : 0.0f);
  for (size_t i = 0; i < d; i += kBlock) {
    V even = hn::Zero(df), odd = hn::Zero(df);
    for (size_t u = 0; u < n_units; ++u) {
      const V w = hn::Set(df, share[u]);
      even = hn::MulAdd(w, hn::Load(df, part + u * s.d_pad + i), even);
      odd = hn::MulAdd(w, hn::Load(df, part + u * s.d_pad + i + kLanes), odd);
    }
    HWY_ALIGN float block[kBlock];
    hn::StoreInterleaved2(hn::Mul(even, inverse), hn::Mul(odd, inverse), df, block);
    std::memcpy(a.out + head * d + i, block, HWY_MIN(kBlock, d - i) * sizeof(float));
  }
  if (a.page_mass == nullptr) return;
  float* mass = a.page_mass + size_t{head} * a.kv.capacity;
  for (uint32_t p = 0; p < listed; ++p) {
    const size_t u = p / kSplitPages;
    mass[p] = share[u] > 0.0f ? mass[p] * (share[u] / (sum[u] * total)) : 0.0f;
  }
}

bool has_kernels() { return true; }

#else

void decode_unit(const AttnPagedArgs&, const DecodeScratch&, uint32_t, uint32_t, size_t) {}
void permute_queries(const AttnPagedArgs&, const DecodeScratch&) {}
void merge_units(const AttnPagedArgs&, const DecodeScratch&, uint32_t) {}
bool has_kernels() { return false; }

#endif

}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {
namespace {

HWY_EXPORT(decode_unit);
HWY_EXPORT(permute_queries);
HWY_EXPORT(merge_units);
HWY_EXPORT(has_kernels);

// Floats of partial results up to which the calling thread merges alone: waking another costs more.
constexpr size_t kSerialMerge = 16384;

}  // namespace

bool attn_has_kernels() { return HWY_DYNAMIC_DISPATCH(has_kernels)(); }

void attn_decode(OpContext& cx, const AttnPagedArgs& a) {
  const auto unit = HWY_DYNAMIC_DISPATCH(decode_unit);
  const auto merge = HWY_DYNAMIC_DISPATCH(merge_units);
  const uint32_t n_kv_heads = a.kv.n_kv_heads;
  uint32_t most = 0;
  for (uint32_t kv_head = 0; kv_head < n_kv_heads; ++kv_head) most = std::max(most, n_listed(a, kv_head));
  Arena arena(cx.scratch, cx.scratch_bytes);
  const DecodeScratch s = lay_out_decode(arena, cx.pool->n_threads(), a.n_heads, n_kv_heads, a.kv.head_dim, most);
  HWY_DYNAMIC_DISPATCH(permute_queries)(a, s);
  cx.pool->parallel_for(s.max_units * n_kv_heads, [&](size_t task, size_t worker) {
    const auto kv_head = static_cast<uint32_t>(task % n_kv_heads);
    const auto u = static_cast<uint32_t>(task / n_kv_heads);
    if (u * kSplitPages < n_listed(a, kv_head)) unit(a, s, kv_head, u, worker);
  });
  if (a.n_heads * s.max_units * s.d_pad <= kSerialMerge) {
    for (uint32_t head = 0; head < a.n_heads; ++head) merge(a, s, head);
  } else {
    cx.pool->parallel_for(a.n_heads, [&](size_t head, size_t) { merge(a, s, static_cast<uint32_t>(head)); });
  }
}

}  // namespace weir::cpu
#endif  // HWY_ONCE
