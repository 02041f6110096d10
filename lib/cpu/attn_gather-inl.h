// Inner loops of attention over single tokens that lie anywhere: logits and sums of values by pages and rows, which are
// prefetched, because the hardware cannot foresee them. Compiled once per instruction set.
#if defined(WEIR_CPU_ATTN_GATHER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEIR_CPU_ATTN_GATHER_INL_H_
#undef WEIR_CPU_ATTN_GATHER_INL_H_
#else
#define WEIR_CPU_ATTN_GATHER_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "cpu/attn_paged_units-inl.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {

#if WEIR_CPU_HAS_VECTORS

// Rows that are on their way while one is read: a core has some 16 lines under way, and a row is 4 of them.
constexpr size_t kRowsAhead = 32;
constexpr size_t kLineBytes = 64;

HWY_INLINE void prefetch_row(const PagePart<const uint16_t>& part, uint32_t token) {
  const auto* codes = reinterpret_cast<const std::byte*>(part.codes(token));
  for (size_t i = 0; i < row_code_bytes(part.format, part.head_dim); i += kLineBytes) hwy::Prefetch(codes + i);
  const auto* scales = reinterpret_cast<const std::byte*>(part.scales(token));
  const size_t n_scales = part_scales(part.format, part.head_dim, 1);
  for (size_t i = 0; i < n_scales * sizeof(uint16_t); i += kLineBytes) hwy::Prefetch(scales + i);
}
HWY_INLINE void prefetch_key(const KvView& kv, const TokenRow& row) {
  prefetch_row(keys_in(kv.format, row.page, kv.head_dim), row.token);
}
HWY_INLINE void prefetch_value(const KvView& kv, const TokenRow& row) {
  prefetch_row(values_in(kv.format, row.page, kv.head_dim), row.token);
}

// gather_logits of keys that are rounded by channels, token by token: tiles of them would be 60 KB of code for what a
// few policies do with these pages.
template <size_t kHeads>
HWY_NOINLINE void gather_channel_logits(const KvView& kv, const RowShape& shape, const float* q, size_t d_pad,
                                        const TokenRow* rows, size_t n, float* logit, size_t stride) {
  constexpr RowFormat kFormat = RowFormat::kQ4ByChannel;
  const DF df;
  for (size_t t = 0; t < n; ++t) {
    if (t + kRowsAhead < n) prefetch_key(kv, rows[t + kRowsAhead]);
    const RowOf<kFormat> row({rows[t].page, kFormat, shape.d}, rows[t].token);
    V sum[kHeads];
    for (size_t h = 0; h < kHeads; ++h) sum[h] = hn::Zero(df);
    for (size_t b = 0; b < shape.n_full; ++b) {
      V even, odd;
      row.template load<false>(shape, b, even, odd);
      for (size_t h = 0; h < kHeads; ++h) {
        const float* to = q + h * d_pad + b * kBlock;
        sum[h] = hn::MulAdd(odd, hn::Load(df, to + kLanes), hn::MulAdd(even, hn::Load(df, to), sum[h]));
      }
    }
    for (size_t h = 0; h < kHeads; ++h) logit[h * stride + t] = hn::GetLane(hn::SumOfLanes(df, sum[h]));
  }
}

// logit[h * stride + i] = q_h . row[i], i < n. Prefetches rows.
template <size_t kHeads, RowFormat kFormat>
HWY_NOINLINE void gather_logits(const KvView& kv, const RowShape& shape, const float* q, size_t d_pad,
                                const TokenRow* rows, size_t n, float* logit, size_t stride) {
  if constexpr (is_by_channel(kFormat))
    return gather_channel_logits<kHeads>(kv, shape, q, d_pad, rows, n, logit, stride);
  constexpr size_t kToks = LogitTile<kHeads>::kToks, kSums = LogitTile<kHeads>::kSums;
  const DF df;
  for (size_t t = 0; t < n; t += kToks) {
    RowOf<kFormat> row[kToks];
    // Rows beyond the end repeat the last; their results are dropped.
    HWY_UNROLL(8)
    for (size_t i = 0; i < kToks; ++i) {
      const TokenRow& at = rows[HWY_MIN(t + i, n - 1)];
      row[i] = RowOf<kFormat>({at.page, kFormat, shape.d}, at.token);
      if (t + i + kRowsAhead < n) prefetch_key(kv, rows[t + i + kRowsAhead]);
    }
    V sum[kSums];
    HWY_UNROLL(16)
    for (size_t i = 0; i < kSums; ++i) sum[i] = hn::Zero(df);
    for (size_t b = 0; b < shape.n_full; ++b) add_products<kHeads, false, false>(shape, q, d_pad, row, 0, b, sum);
    if constexpr (kFormat == RowFormat::kBf16) {
      if (shape.tail) add_products<kHeads, true, false>(shape, q, d_pad, row, 0, shape.n_full, sum);
    }
    V sums = sums_of<kSums>(sum);
    for (size_t m = kSums; m < kLanes; m *= 2)
      sums = hn::Add(hn::ConcatEven(df, sums, sums), hn::ConcatOdd(df, sums, sums));
    HWY_ALIGN float lane[kLanes];
    hn::Store(sums, df, lane);
    for (size_t h = 0; h < kHeads; ++h) {
      for (size_t i = 0; i < HWY_MIN(kToks, n - t); ++i) logit[h * stride + t + i] = lane[h * kToks + i];
    }
  }
}

template <size_t kHeads, size_t kBlocks, bool kTail, RowFormat kFormat>
HWY_INLINE void gather_block(const KvView& kv, const RowShape& shape, const float* weight, size_t stride,
                             const uint32_t* used, size_t n, size_t n_more, const TokenRow* rows, size_t block,
                             float* out, size_t out_stride) {
  const DF df;
  V sum[kHeads * 2 * kBlocks];
  HWY_UNROLL(16)
  for (size_t i = 0; i < kHeads * 2 * kBlocks; ++i)
    sum[i] = hn::Load(df, out + i / (2 * kBlocks) * out_stride + block * kBlock + i % (2 * kBlocks) * kLanes);
  for (size_t t = 0; t < n; ++t) {
    const TokenRow& at = rows[used[t]];
    const RowOf<kFormat> value_row(values_in(kv.format, at.page, shape.d), at.token);
    if (block == 0 && t + kRowsAhead < n_more) prefetch_value(kv, rows[used[t + kRowsAhead]]);
    V value[2 * kBlocks];
    HWY_UNROLL(4)
    for (size_t b = 0; b < kBlocks; ++b)
      value_row.template load<kTail>(shape, block + b, value[2 * b], value[2 * b + 1]);
    HWY_UNROLL(4)
    for (size_t h = 0; h < kHeads; ++h) {
      const V w = hn::Set(df, weight[h * stride + used[t]]);
      HWY_UNROLL(8)
      for (size_t i = 0; i < 2 * kBlocks; ++i)
        sum[h * 2 * kBlocks + i] = hn::MulAdd(w, value[i], sum[h * 2 * kBlocks + i]);
    }
  }
  HWY_UNROLL(16)
  for (size_t i = 0; i < kHeads * 2 * kBlocks; ++i)
    hn::Store(sum[i], df, out + i / (2 * kBlocks) * out_stride + block * kBlock + i % (2 * kBlocks) * kLanes);
}

// out_h += sum over the first n members t of `used` [n_more] of weight[h * stride + t] * the value of rows[t].
template <size_t kHeads, RowFormat kFormat>
HWY_NOINLINE void gather_values(const KvView& kv, const RowShape& shape, const float* weight, size_t stride,
                                const uint32_t* used, size_t n, size_t n_more, const TokenRow* rows, float* out,
                                size_t out_stride) {
  constexpr size_t kBlocks = (kManyRegisters ? 2 : 1) * (kHeads <= 2 ? 2 : 1);
  size_t b = 0;
  for (; b + kBlocks <= shape.n_full; b += kBlocks)
    gather_block<kHeads, kBlocks, false, kFormat>(kv, shape, weight, stride, used, n, n_more, rows, b, out, out_stride);
  for (; b < shape.n_full; ++b)
    gather_block<kHeads, 1, false, kFormat>(kv, shape, weight, stride, used, n, n_more, rows, b, out, out_stride);
  if constexpr (kFormat != RowFormat::kBf16) return;
  if (shape.tail)
    gather_block<kHeads, 1, true, kFormat>(kv, shape, weight, stride, used, n, n_more, rows, b, out, out_stride);
}

// For each head g of a group, out [group, d_pad] gets the sum over the n members t of `used` of weight[g * stride + t]
// times the value of rows[t], permuted. The first rows are on their way.
inline void sum_rows(const KvView& kv, uint32_t group, const float* weight, size_t stride, const uint32_t* used,
                     size_t n, const TokenRow* rows, float* out, size_t d_pad) {
  const RowShape shape(kv.head_dim);
  std::fill(out, out + group * d_pad, 0.0f);
  for (size_t first = 0; first < n; first += kTileTokens) {
    with_value_format(value_format(kv.format), [&](auto format) HWY_ATTR {
      for_heads(group, [&](auto heads, uint32_t g) HWY_ATTR {
        gather_values<decltype(heads)::value, decltype(format)::value>(kv, shape, weight + g * stride, stride,
                                                                       used + first, HWY_MIN(kTileTokens, n - first),
                                                                       n - first, rows, out + g * d_pad, d_pad);
      });
    });
  }
}

// Writes rows of queries [n_rows], `from_stride` apart, permuted and scaled.
inline void permute_rows(const float* from, size_t from_stride, uint32_t n_rows, const AttnPagedArgs& shape, float* to,
                         size_t d_pad) {
  AttnPagedArgs row = shape;
  row.n_heads = 1;
  row.q_sink = nullptr;
  for (uint32_t r = 0; r < n_rows; ++r) {
    row.q = from + r * from_stride;
    permute_queries(row, d_pad, to + r * d_pad);
  }
}

#endif  // WEIR_CPU_HAS_VECTORS

}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per target
