// Some listed pages of a stream and one query row: logits of all query heads of the list, and sums of values. The inner
// loops are in attn_paged_rows-inl.h.
#if defined(WEIR_CPU_ATTN_PAGED_UNITS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEIR_CPU_ATTN_PAGED_UNITS_INL_H_
#undef WEIR_CPU_ATTN_PAGED_UNITS_INL_H_
#else
#define WEIR_CPU_ATTN_PAGED_UNITS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "cpu/attn_paged_parts.h"
#include "cpu/attn_paged_rows-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {

#if WEIR_CPU_HAS_VECTORS

// Calls f<kHeads>(first head) for the heads of a group, up to four at a time.
template <class F>
HWY_INLINE void for_heads(uint32_t group, const F& f) {
  uint32_t g = 0;
  for (; g + 4 <= group; g += 4) f(std::integral_constant<size_t, 4>(), g);
  if (group - g == 3) f(std::integral_constant<size_t, 3>(), g);
  if (group - g == 2) f(std::integral_constant<size_t, 2>(), g);
  if (group - g == 1) f(std::integral_constant<size_t, 1>(), g);
}

// Writes the scaled queries [n_heads, d_pad], and behind them those for sink pages, permuted as DecodeScratch says.
inline void permute_queries(const AttnPagedArgs& a, size_t d_pad, float* out) {
  const DF df;
  const size_t d = a.kv.head_dim;
  const V scale = hn::Set(df, a.scale);
  for (size_t head = 0; head < (a.q_sink != nullptr ? 2 : 1) * size_t{a.n_heads}; ++head) {
    const float* from = head < a.n_heads ? a.q + head * d : a.q_sink + (head - a.n_heads) * d;
    float* to = out + head * d_pad;
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

HWY_INLINE ptrdiff_t bytes_between(const uint16_t* from, const uint16_t* to) { return (to - from) * 2; }

// weight[g * kUnitTokens + p * kPageTokens + t] = logit of head g for token t of listed page first + p, p < n; kUnseen
// where it is not seen. `queries` are those of all heads.
inline void unit_logits(const AttnPagedArgs& a, const float* queries, size_t d_pad, uint32_t list, uint32_t first,
                        uint32_t n, float* weight) {
  const uint32_t group = heads_of_list(a);
  const RowShape shape(a.kv.head_dim);
  const float* q = queries + size_t{list} * group * d_pad;
  for (uint32_t p = 0; p < n; ++p) {
    const ListedPage page = listed_page(a, list, first + p);
    // The first page's values are read after the last page's keys.
    const uint16_t* next =
        p + 1 < n ? listed_page(a, list, first + p + 1).keys.units : listed_page(a, list, first).values.units;
    const Seen seen = seen_by(a, page, a.pos);
    const float* sink_q = q + a.n_heads * d_pad;
    // [begin, edge) use the sink query, [edge, end) the other one.
    const uint32_t edge = std::clamp(page.sink_tokens, seen.begin, seen.end);
    float* to = weight + p * kPageTokens;
    if (!seen.all()) {
      for (uint32_t g = 0; g < group; ++g) std::fill(to + g * kUnitTokens, to + g * kUnitTokens + kPageTokens, kUnseen);
    }
    with_key_format(page.keys.format, [&](auto format) HWY_ATTR {
      constexpr RowFormat kFormat = decltype(format)::value;
      for_heads(group, [&](auto heads, uint32_t g) HWY_ATTR {
        constexpr size_t kHeads = decltype(heads)::value;
        const size_t at = g * d_pad;
        const ptrdiff_t ahead = g == 0 ? bytes_between(page.keys.units, next) : 0;
        float* out = to + g * kUnitTokens;
        if (seen.sink_end > 0) {
          page_logits<kHeads, kFormat>(shape, (page.sink_tokens > 0 ? sink_q : q) + at, d_pad, page.keys, ahead, 0,
                                       seen.sink_end, out);
        }
        if (edge > seen.begin)
          page_logits<kHeads, kFormat>(shape, sink_q + at, d_pad, page.keys, ahead, seen.begin, edge, out);
        if (edge < seen.end) page_logits<kHeads, kFormat>(shape, q + at, d_pad, page.keys, ahead, edge, seen.end, out);
      });
    });
  }
  if (a.soft_cap == 0.0f) return;
  for (uint32_t g = 0; g < group; ++g) cap_logits(a.soft_cap, weight + g * kUnitTokens, size_t{n} * kPageTokens);
}

// out[g * stride ...] += the weighted values of these pages, permuted.
inline void unit_values(const AttnPagedArgs& a, uint32_t list, uint32_t first, uint32_t n, const float* weight,
                        float* out, size_t stride) {
  const uint32_t group = heads_of_list(a);
  const RowShape shape(a.kv.head_dim);
  for (uint32_t p = 0; p < n; ++p) {
    const ListedPage page = listed_page(a, list, first + p);
    // What is read after the last page's values is not known.
    const uint16_t* next = p + 1 < n ? listed_page(a, list, first + p + 1).values.units : page.values.units;
    const Seen seen = seen_by(a, page, a.pos);
    with_value_format(page.values.format, [&](auto format) HWY_ATTR {
      constexpr RowFormat kFormat = decltype(format)::value;
      for_heads(group, [&](auto heads, uint32_t g) HWY_ATTR {
        constexpr size_t kHeads = decltype(heads)::value;
        const float* from = weight + p * kPageTokens + g * kUnitTokens;
        const ptrdiff_t ahead = g == 0 ? bytes_between(page.values.units, next) : 0;
        float* to = out + g * stride;
        if (seen.sink_end > 0)
          page_values<kHeads, kFormat>(shape, from, page.values, ahead, 0, seen.sink_end, to, stride);
        page_values<kHeads, kFormat>(shape, from, page.values, ahead, seen.begin, seen.end, to, stride);
      });
    });
  }
}

// Writes two permuted vectors at element i of a head's result [d].
HWY_INLINE void store_block(size_t d, size_t i, V even, V odd, float* out) {
  HWY_ALIGN float block[kBlock];
  hn::StoreInterleaved2(even, odd, DF(), block);
  std::memcpy(out + i, block, HWY_MIN(kBlock, d - i) * sizeof(float));
}

// Writes a head's result [d]: `part`, permuted, times a factor.
inline void store_head(size_t d, const float* part, float factor, float* out) {
  const DF df;
  const V f = hn::Set(df, factor);
  for (size_t i = 0; i < d; i += kBlock)
    store_block(d, i, hn::Mul(hn::Load(df, part + i), f), hn::Mul(hn::Load(df, part + i + kLanes), f), out);
}

#endif  // WEIR_CPU_HAS_VECTORS

}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per target
