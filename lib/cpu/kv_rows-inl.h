// Rows of a page's part in each of its formats (ops/kv_format.h), read block by block, compiled once per instruction
// set. A block of two vectors' worth of elements becomes one vector of its even and one of its odd elements, which is
// what pairs of bf16, and of 4-bit codes, are widened to at the least cost.
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

// The even and odd elements of a block in bf16.
HWY_INLINE void split_pairs(hn::Vec<hn::RebindToUnsigned<DF>> pairs, V& even, V& odd) {
  even = hn::BitCast(DF(), hn::ShiftLeft<16>(pairs));
  odd = hn::BitCast(DF(), hn::And(pairs, hn::Set(hn::RebindToUnsigned<DF>(), 0xFFFF0000u)));
}
HWY_INLINE void load_pairs(const uint16_t* from, V& even, V& odd) {
  split_pairs(hn::BitCast(hn::RebindToUnsigned<DF>(), hn::LoadU(hn::Repartition<uint16_t, DF>(), from)), even, odd);
}

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
    if constexpr (!kTail) return load_pairs(at + b * kBlock, even, odd);
    const hn::RebindToUnsigned<DF> du;
    const auto* from = reinterpret_cast<const uint32_t*>(at + b * kBlock);
    split_pairs(hn::MaskedLoad(shape.tail_mask, du, from), even, odd);
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

// Codes of 4 bits as they are, 0 to 15: also for keys that are rounded by channels, with queries that have the steps in
// them.
struct CodeRow {
  const uint8_t* codes;
  HWY_INLINE CodeRow() = default;
  HWY_INLINE CodeRow(const PagePart<const uint16_t>& part, size_t token)
      : codes(reinterpret_cast<const uint8_t*>(part.units) + token * (part.head_dim / 2)) {}
  HWY_INLINE const std::byte* block(size_t b) const { return reinterpret_cast<const std::byte*>(codes + b * kLanes); }

  template <bool kTail>
  HWY_INLINE void load(const RowShape&, size_t b, V& even, V& odd) const {
    const DF df;
    const hn::RebindToSigned<DF> di;
    const hn::Rebind<uint8_t, DF> d8;
    const auto pairs = hn::PromoteTo(di, hn::LoadU(d8, codes + b * kLanes));
    even = hn::ConvertTo(df, hn::And(pairs, hn::Set(di, 15)));
    odd = hn::ConvertTo(df, hn::ShiftRight<4>(pairs));
  }
};

template <>
struct RowOf<RowFormat::kQ4> {
  CodeRow row;
  const uint16_t* scales;
  HWY_INLINE RowOf() = default;
  HWY_INLINE RowOf(const PagePart<const uint16_t>& part, size_t token)
      : row(part, token),
        scales(part.units + kPageTokens * part.head_dim / 4 + token * (part.head_dim / kScaleElements)) {}
  HWY_INLINE const std::byte* block(size_t b) const { return row.block(b); }

  template <bool kTail>
  HWY_INLINE void load(const RowShape& shape, size_t b, V& even, V& odd) const {
    row.template load<false>(shape, b, even, odd);
    const V scale = scale_of_block(scales, b), zero = hn::Set(DF(), 8.0f);
    even = hn::Mul(hn::Sub(even, zero), scale);
    odd = hn::Mul(hn::Sub(odd, zero), scale);
  }
};

template <>
struct RowOf<RowFormat::kQ4ByChannel> {
  CodeRow row;
  const uint16_t* low;  // [d] of the page, and behind it the steps
  HWY_INLINE RowOf() = default;
  HWY_INLINE RowOf(const PagePart<const uint16_t>& part, size_t token)
      : row(part, token), low(part.units + kPageTokens * part.head_dim / 4) {}
  HWY_INLINE const std::byte* block(size_t b) const { return row.block(b); }

  template <bool kTail>
  HWY_INLINE void load(const RowShape& shape, size_t b, V& even, V& odd) const {
    V code[2], least[2], step[2];
    row.template load<false>(shape, b, code[0], code[1]);
    load_pairs(low + b * kBlock, least[0], least[1]);
    load_pairs(low + shape.d + b * kBlock, step[0], step[1]);
    even = hn::MulAdd(code[0], step[0], least[0]);
    odd = hn::MulAdd(code[1], step[1], least[1]);
  }
};

template <RowFormat kFormat>
using FormatTag = std::integral_constant<RowFormat, kFormat>;

// Calls f(FormatTag<format>()) for a format that keys can have, or values.
template <class F>
HWY_INLINE void with_key_format(RowFormat format, const F& f) {
  if (format == RowFormat::kBf16) return f(FormatTag<RowFormat::kBf16>());
  if (format == RowFormat::kQ8) return f(FormatTag<RowFormat::kQ8>());
  f(FormatTag<RowFormat::kQ4ByChannel>());
}
template <class F>
HWY_INLINE void with_value_format(RowFormat format, const F& f) {
  if (format == RowFormat::kBf16) return f(FormatTag<RowFormat::kBf16>());
  if (format == RowFormat::kQ8) return f(FormatTag<RowFormat::kQ8>());
  f(FormatTag<RowFormat::kQ4>());
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
  if (part.format == RowFormat::kQ8) return all(RowOf<RowFormat::kQ8>(part, token));
  if (part.format == RowFormat::kQ4) return all(RowOf<RowFormat::kQ4>(part, token));
  all(RowOf<RowFormat::kQ4ByChannel>(part, token));
}

#endif  // WEIR_CPU_HAS_VECTORS

}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per target
