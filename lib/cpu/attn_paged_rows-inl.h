// Inner loops of decode attention, compiled once per instruction set: logits of a page's tokens, softmax of a unit,
// weighted sums of a page's values. Up to four query heads share what is widened.
#if defined(WEIR_CPU_ATTN_PAGED_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEIR_CPU_ATTN_PAGED_ROWS_INL_H_
#undef WEIR_CPU_ATTN_PAGED_ROWS_INL_H_
#else
#define WEIR_CPU_ATTN_PAGED_ROWS_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "cpu/attn_paged_parts.h"
#include "cpu/kv_rows-inl.h"
#include "cpu/simd-inl.h"
#include "cpu/soft_cap-inl.h"
#include "hwy/cache_control.h"
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {

#if WEIR_CPU_HAS_VECTORS

constexpr bool kManyRegisters = HWY_TARGET <= HWY_AVX3 || HWY_TARGET == HWY_NEON;
constexpr float kUnseen = -std::numeric_limits<float>::infinity();

// Returns a vector whose lane i is the sum of the lanes of v[i]; the number of vectors is a power of two. The sums are
// pairwise, in the same order for every i.
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

// Tokens and heads that are summed at the same time: as many accumulators as registers allow, one per lane of the final
// vector.
template <size_t kHeads>
struct LogitTile {
  static constexpr size_t kSlots = kHeads == 3 ? 4 : kHeads;
  static constexpr size_t kToks = HWY_MIN(kLanes / kSlots, size_t{8});
  static constexpr size_t kSums = kSlots * kToks;
};

// Without kAhead nothing is prefetched.
template <size_t kHeads, bool kTail, bool kAhead = true, class Row>
HWY_INLINE void add_products(const RowShape& shape, const float* q, size_t d_pad, const Row* row, ptrdiff_t ahead,
                             size_t block, V* sum) {
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
    row[t].template load<kTail>(shape, block, key_even, key_odd);
    if constexpr (kAhead) hwy::Prefetch(row[t].block(block) + ahead);
    HWY_UNROLL(4)
    for (size_t h = 0; h < kHeads; ++h) sum[h * kToks + t] = hn::MulAdd(key_even, even[h], sum[h * kToks + t]);
    HWY_UNROLL(4)
    for (size_t h = 0; h < kHeads; ++h) sum[h * kToks + t] = hn::MulAdd(key_odd, odd[h], sum[h * kToks + t]);
  }
}

// logit[h * kUnitTokens + t] = q_h . k_t for tokens [begin, end) of a page. Prefetches what lies `ahead` bytes further,
// which is needed next: pages are too short and too far apart for the hardware prefetcher.
template <size_t kHeads, class Row>
HWY_NOINLINE void row_logits(const RowShape& shape, const float* q, size_t d_pad, const PagePart<const uint16_t>& keys,
                             ptrdiff_t ahead, uint32_t begin, uint32_t end, float* logit) {
  constexpr size_t kToks = LogitTile<kHeads>::kToks, kSums = LogitTile<kHeads>::kSums;
  const DF df;
  for (size_t t = begin; t < end; t += kToks) {
    Row row[kToks];
    // Rows beyond the end repeat the last; their results are dropped.
    HWY_UNROLL(8)
    for (size_t i = 0; i < kToks; ++i) row[i] = Row(keys, HWY_MIN(t + i, size_t{end} - 1));
    V sum[kSums];
    HWY_UNROLL(16)
    for (size_t i = 0; i < kSums; ++i) sum[i] = hn::Zero(df);
    for (size_t b = 0; b < shape.n_full; ++b) add_products<kHeads, false>(shape, q, d_pad, row, ahead, b, sum);
    if constexpr (std::is_same_v<Row, RowOf<RowFormat::kBf16>>) {
      if (shape.tail) add_products<kHeads, true>(shape, q, d_pad, row, ahead, shape.n_full, sum);
    }
    V sums = sums_of<kSums>(sum);
    for (size_t n = kSums; n < kLanes; n *= 2)
      sums = hn::Add(hn::ConcatEven(df, sums, sums), hn::ConcatOdd(df, sums, sums));
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

// Channels' steps and lowest numbers are multiplied with the queries once for the page: q . (low + step * code) is
// q . low + (q * step) . code.
template <size_t kHeads>
HWY_NOINLINE void channel_logits(const RowShape& shape, const float* q, size_t d_pad,
                                 const PagePart<const uint16_t>& keys, ptrdiff_t ahead, uint32_t begin, uint32_t end,
                                 float* logit) {
  const DF df;
  HWY_ALIGN float scaled[kHeads * kMaxHeadDim];
  V of_low[kHeads];
  for (size_t h = 0; h < kHeads; ++h) of_low[h] = hn::Zero(df);
  const uint16_t* low = keys.scales(0);
  for (size_t i = 0; i < shape.d; i += kBlock) {
    V least[2], step[2];
    load_pairs(low + i, least[0], least[1]);
    load_pairs(low + shape.d + i, step[0], step[1]);
    hwy::Prefetch(reinterpret_cast<const std::byte*>(low + i) + ahead);
    hwy::Prefetch(reinterpret_cast<const std::byte*>(low + shape.d + i) + ahead);
    HWY_UNROLL(4)
    for (size_t h = 0; h < kHeads; ++h) {
      const V even = hn::Load(df, q + h * d_pad + i), odd = hn::Load(df, q + h * d_pad + i + kLanes);
      of_low[h] = hn::MulAdd(odd, least[1], hn::MulAdd(even, least[0], of_low[h]));
      hn::Store(hn::Mul(even, step[0]), df, scaled + h * shape.d + i);
      hn::Store(hn::Mul(odd, step[1]), df, scaled + h * shape.d + i + kLanes);
    }
  }
  row_logits<kHeads, CodeRow>(shape, scaled, shape.d, keys, ahead, begin, end, logit);
  for (size_t h = 0; h < kHeads; ++h) {
    const float all = hn::GetLane(hn::SumOfLanes(df, of_low[h]));
    for (uint32_t t = begin; t < end; ++t) logit[h * kUnitTokens + t] += all;
  }
}

template <size_t kHeads, RowFormat kFormat>
HWY_INLINE void page_logits(const RowShape& shape, const float* q, size_t d_pad, const PagePart<const uint16_t>& keys,
                            ptrdiff_t ahead, uint32_t begin, uint32_t end, float* logit) {
  if constexpr (is_by_channel(kFormat)) {
    channel_logits<kHeads>(shape, q, d_pad, keys, ahead, begin, end, logit);
  } else {
    row_logits<kHeads, RowOf<kFormat>>(shape, q, d_pad, keys, ahead, begin, end, logit);
  }
}

template <size_t kHeads, size_t kBlocks, bool kTail, RowFormat kFormat>
HWY_INLINE void add_values(const RowShape& shape, const float* weight, const PagePart<const uint16_t>& values,
                           ptrdiff_t ahead, uint32_t begin, uint32_t end, size_t block, float* out, size_t out_stride) {
  const DF df;
  V sum[kHeads * 2 * kBlocks];
  HWY_UNROLL(16)
  for (size_t i = 0; i < kHeads * 2 * kBlocks; ++i) {
    sum[i] = hn::Load(df, out + i / (2 * kBlocks) * out_stride + block * kBlock + i % (2 * kBlocks) * kLanes);
  }
  for (size_t t = begin; t < end; ++t) {
    const RowOf<kFormat> row(values, t);
    V value[2 * kBlocks];
    HWY_UNROLL(4)
    for (size_t b = 0; b < kBlocks; ++b) {
      row.template load<kTail>(shape, block + b, value[2 * b], value[2 * b + 1]);
      hwy::Prefetch(row.block(block + b) + ahead);
    }
    HWY_UNROLL(4)
    for (size_t h = 0; h < kHeads; ++h) {
      const V w = hn::Set(df, weight[h * kUnitTokens + t]);
      HWY_UNROLL(8)
      for (size_t i = 0; i < 2 * kBlocks; ++i)
        sum[h * 2 * kBlocks + i] = hn::MulAdd(w, value[i], sum[h * 2 * kBlocks + i]);
    }
  }
  HWY_UNROLL(16)
  for (size_t i = 0; i < kHeads * 2 * kBlocks; ++i) {
    hn::Store(sum[i], df, out + i / (2 * kBlocks) * out_stride + block * kBlock + i % (2 * kBlocks) * kLanes);
  }
}

// out_h += sum of weight[h * kUnitTokens + t] * v_t over tokens [begin, end) of a page.
template <size_t kHeads, RowFormat kFormat>
HWY_NOINLINE void page_values(const RowShape& shape, const float* weight, const PagePart<const uint16_t>& values,
                              ptrdiff_t ahead, uint32_t begin, uint32_t end, float* out, size_t out_stride) {
  constexpr size_t kBlocks = (kManyRegisters ? 2 : 1) * (kHeads <= 2 ? 2 : 1);
  size_t b = 0;
  for (; b + kBlocks <= shape.n_full; b += kBlocks)
    add_values<kHeads, kBlocks, false, kFormat>(shape, weight, values, ahead, begin, end, b, out, out_stride);
  for (; b < shape.n_full; ++b)
    add_values<kHeads, 1, false, kFormat>(shape, weight, values, ahead, begin, end, b, out, out_stride);
  if constexpr (kFormat != RowFormat::kBf16) return;
  if (shape.tail) add_values<kHeads, 1, true, kFormat>(shape, weight, values, ahead, begin, end, b, out, out_stride);
}

// Turns logits into weights relative to their maximum; page_sum[p] [kSplitPages] is the sum over page p. Returns the
// maximum and the sum over all pages.
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

#endif  // WEIR_CPU_HAS_VECTORS

}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per target
