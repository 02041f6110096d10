// Rows of a page's part in each of its formats (ops/kv_format.h), read block by block, compiled once per
// instruction set. A block of two vectors' worth of elements becomes one vector of its even and one of its odd
// elements, which is what pairs of bf16, and of 4-bit codes, are widened to at the least cost.
#if defined(WEIR_CPU_KV_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEIR_CPU_KV_ROWS_INL_H_
#undef WEIR_CPU_KV_ROWS_INL_H_
#else
#define WEIR_CPU_KV_ROWS_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "cpu/simd-inl.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "ops/kv_format.h"

HWY_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {

#if WEIR_CPU_HAS_VECTORS

using DF = hn::ScalableTag<float>;
using V = hn::Vec<DF>;
constexpr size_t kLanes = HWY_LANES(float);
constexpr size_t kBlock = 2 * kLanes;  // elements that become one vector of even and one of odd elements
static_assert(kScaleElements % kBlock == 0, "a block has one scale");

// The number of elements of a row, whose last block may be partial in bf16.
struct RowShape {
  explicit RowShape(size_t head_dim)
      : d(head_dim),
        n_full(head_dim / kBlock),
        tail(head_dim % kBlock != 0),
        tail_mask(hn::FirstN(hn::RebindToUnsigned<DF>(), head_dim % kBlock / 2)) {}
  size_t d;
  size_t n_full;
  bool tail;
  hn::Mask<hn::RebindToUnsigned<DF>> tail_mask;
};

// A row: load() gives the even and odd elements of a block, block() where a block is, to prefetch it.
template <RowFormat kFormat>
struct RowOf;

template <>
struct RowOf<RowFormat::kBf16> {
  const uint16_t* at;
  HWY_INLINE RowOf() = default;
  HWY_INLINE RowOf(const PagePart<const uint16_t>& part, size_t token) : at(part.units + token * part.head_dim) {}
  HWY_INLINE const std::byte* block(size_t b) const { return reinterpret_cast<const std::byte*>(at + b * kBlock); }

  // Targets whose vectors have at most 4 lanes never have a partial block, so a masked load reads nothing beyond the
  // row.
  template <bool kTail>
  HWY_INLINE void load(const RowShape& shape, size_t b, V& even, V& odd) const {
    const DF df;
    const hn::RebindToUnsigned<DF> du;
    const hn::Repartition<uint16_t, DF> d16;
    hn::Vec<decltype(du)> pairs;
    if constexpr (kTail) {
      pairs = hn::MaskedLoad(shape.tail_mask, du, reinterpret_cast<const uint32_t*>(at + b * kBlock));
    } else {
      pairs = hn::BitCast(du, hn::LoadU(d16, at + b * kBlock));
    }
    even = hn::BitCast(df, hn::ShiftLeft<16>(pairs));
    odd = hn::BitCast(df, hn::And(pairs, hn::Set(du, 0xFFFF0000u)));
  }
};

HWY_INLINE V scale_of_block(const uint16_t* scales, size_t b) {
  const hn::RebindToUnsigned<DF> du;
  return hn::BitCast(DF(), hn::Set(du, uint32_t{scales[b * kBlock / kScaleElements]} << 16));
}

template <>
struct RowOf<RowFormat::kQ8> {
  const uint8_t* codes;
  const uint16_t* scales;
  HWY_INLINE RowOf() = default;
  HWY_INLINE RowOf(const PagePart<const uint16_t>& part, size_t token)
      : codes(reinterpret_cast<const uint8_t*>(part.units) + token * part.head_dim),
        scales(part.units + kPageTokens * part.head_dim / 2 + token * (part.head_dim / kScaleElements)) {}
  HWY_INLINE const std::byte* block(size_t b) const { return reinterpret_cast<const std::byte*>(codes + b * kBlock); }

  template <bool kTail>
  HWY_INLINE void load(const RowShape&, size_t b, V& even, V& odd) const {
    const DF df;
    const hn::RebindToSigned<DF> di;
    const hn::Rebind<int16_t, DF> d16;
    const auto pairs =
        hn::PromoteTo(di, hn::LoadU(d16, reinterpret_cast<const int16_t*>(codes + b * kBlock)));  // odd, even
    const V scale = scale_of_block(scales, b);
    even = hn::Mul(hn::ConvertTo(df, hn::ShiftRight<24>(hn::ShiftLeft<24>(pairs))), scale);
    odd = hn::Mul(hn::ConvertTo(df, hn::ShiftRight<8>(pairs)), scale);
  }
};

template <>
struct RowOf<RowFormat::kQ4> {
  const uint8_t* codes;
  const uint16_t* scales;
  HWY_INLINE RowOf() = default;
  HWY_INLINE RowOf(const PagePart<const uint16_t>& part, size_t token)
      : codes(reinterpret_cast<const uint8_t*>(part.units) + token * (part.head_dim / 2)),
        scales(part.units + kPageTokens * part.head_dim / 4 + token * (part.head_dim / kScaleElements)) {}
  HWY_INLINE const std::byte* block(size_t b) const { return reinterpret_cast<const std::byte*>(codes + b * kLanes); }

  template <bool kTail>
  HWY_INLINE void load(const RowShape&, size_t b, V& even, V& odd) const {
    const DF df;
    const hn::RebindToSigned<DF> di;
    const hn::Rebind<uint8_t, DF> d8;
    const auto pairs = hn::PromoteTo(di, hn::LoadU(d8, codes + b * kLanes));
    const V scale = scale_of_block(scales, b);
    const auto zero = hn::Set(di, 8);
    even = hn::Mul(hn::ConvertTo(df, hn::Sub(hn::And(pairs, hn::Set(di, 15)), zero)), scale);
    odd = hn::Mul(hn::ConvertTo(df, hn::Sub(hn::ShiftRight<4>(pairs), zero)), scale);
  }
};

template <RowFormat kFormat>
using FormatTag = std::integral_constant<RowFormat, kFormat>;

// Calls f(FormatTag<format>()).
template <class F>
HWY_INLINE void with_format(RowFormat format, const F& f) {
  switch (format) {
    case RowFormat::kBf16:
      return f(FormatTag<RowFormat::kBf16>());
    case RowFormat::kQ8:
      return f(FormatTag<RowFormat::kQ8>());
    case RowFormat::kQ4:
      return f(FormatTag<RowFormat::kQ4>());
  }
}

// Calls f(b, even, odd) for the blocks of a quantised row.
template <class F>
HWY_INLINE void for_blocks(const PagePart<const uint16_t>& part, uint32_t token, const F& f) {
  const RowShape shape(part.head_dim);
  const auto all = [&](auto row) HWY_ATTR {
    for (size_t b = 0; b < shape.n_full; ++b) {
      V even, odd;
      row.template load<false>(shape, b, even, odd);
      f(b, even, odd);
    }
  };
  if (part.format == RowFormat::kQ8) {
    all(RowOf<RowFormat::kQ8>(part, token));
  } else {
    all(RowOf<RowFormat::kQ4>(part, token));
  }
}

#endif  // WEIR_CPU_HAS_VECTORS

}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per target
