// Vector decoder of Q3_K (layout: quant/q3_k.h). A weight is one of eight values that depend on its sub-scale. They fit
// a signed byte, so that weights are looked up in tables of bytes, and then widened.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/weight_q3_k.cpp"
#include "cpu/simd_targets.h"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "cpu/weight_kernels-inl.h"
#include "quant/q3_k.h"

WEIR_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {
#if WEIR_VECTOR_KERNELS

// Constants for making tables and indices. A table has the eight values for each of two sub-scales: those of 16 weights
// of an even quarter (32 weights of the block) and of the next quarter. From bit 0 on, an index is the high bit of the
// quant, its two low bits, and a bit that is set for the even quarter.
struct ConstantsQ3_K {
  alignas(64) uint8_t sub[128];  // of all tables, the sub-scales as u16; a byte of 128 becomes 0
  // What the sub-scale, 0..63, is multiplied by, and what is then subtracted, to get (sub-scale - 32) * (4 - q) for
  // q = 0, 4, 1, 5, 2, 6, 3, 7. Pairs of bytes are multiplied at once; the first product is below 256.
  alignas(16) uint8_t factor[16], offset[16];
#if HWY_TARGET == HWY_AVX3_DL
  // The index in an even and in an odd quarter, from the low bits of both (bits 0..3) and the high bits (bits 4..5).
  alignas(64) uint8_t index[2][64];
#else
  // Moves bits of the block to where they are in a byte that holds the indices of two quarters: the low bits of both;
  // from the high bits of four quarters, those of the first two and those of the last two.
  alignas(16) uint8_t low[16], high[2][16];
#endif
};
constexpr ConstantsQ3_K make_constants_q3_k() {
  ConstantsQ3_K c = {};
  for (size_t i = 0; i < 128; ++i) {
    const size_t quarter = i / 32 * 2 + (i / 8 % 2 == 0 ? 1 : 0);
    c.sub[i] = static_cast<uint8_t>(i % 2 != 0 ? 128 : 2 * quarter + i / 16 % 2);
  }
  for (int i = 0; i < 16; ++i) {
    const int q = i % 2 * 4 + i / 2 % 4;
    c.factor[i] = static_cast<uint8_t>(4 - q);
    c.offset[i] = static_cast<uint8_t>(32 * (4 - q));
  }
#if HWY_TARGET == HWY_AVX3_DL
  for (int i = 0; i < 64; ++i) {
    c.index[0][i] = static_cast<uint8_t>(8 | (i & 3) << 1 | (i >> 4 & 1));
    c.index[1][i] = static_cast<uint8_t>((i >> 2 & 3) << 1 | i >> 5);
  }
#else
  for (int i = 0; i < 16; ++i) {
    c.low[i] = static_cast<uint8_t>((i & 3) << 1 | i >> 2 << 5);
    c.high[0][i] = static_cast<uint8_t>(8 | (i & 1) | (i >> 1 & 1) << 4);
    c.high[1][i] = static_cast<uint8_t>(8 | (i >> 2 & 1) | i >> 3 << 4);
  }
#endif
  return c;
}

struct DecoderQ3_K {
  static constexpr Layout kLayout = Layout::kSuperBlocks;
  static constexpr size_t kBlockBytes = sizeof(BlockQ3_K);
  static constexpr size_t kMinima = 0;
  static constexpr TileKind kKind = TileKind::kGroupScale64;  // 4 * 32 * 32767 * 64 < 2^31
  using D16 = hn::CappedTag<int16_t, 32>;
  using D8 = hn::CappedTag<uint8_t, 32>;
  static constexpr ConstantsQ3_K kConstants = make_constants_q3_k();
  struct Header {
    float scale;                     // negative: 4 * 32 does not fit a signed byte, -4 * 32 does
    HWY_ALIGN uint8_t sub[kHalves];  // 32 more than the sub-scales
  };

  static HWY_INLINE void header(const uint8_t* p, Header& h) {
    h.scale = -load_f16(p + offsetof(BlockQ3_K, scale));
    uint64_t low;
    uint32_t high;
    std::memcpy(&low, p + offsetof(BlockQ3_K, sub_scales), sizeof low);
    std::memcpy(&high, p + offsetof(BlockQ3_K, sub_scales) + 8, sizeof high);
    const hn::Full128<uint8_t> d8;
    const hn::Full128<uint32_t> d32;
    const hn::Full128<uint64_t> d64;
    alignas(16) static constexpr uint32_t kShifts[4] = {0, 2, 4, 6};
    const auto bytes = hn::Set(d64, low);
    const auto four = hn::BitCast(d8, hn::InterleaveLower(d64, bytes, hn::ShiftRight<4>(bytes)));
    const auto two = hn::BitCast(d8, hn::ShiftLeft<4>(hn::Shr(hn::Set(d32, high), hn::Load(d32, kShifts))));
    hn::Store(hn::OrAnd(hn::And(four, hn::Set(d8, 15)), two, hn::Set(d8, 48)), d8, h.sub);
  }

  // Shifts bytes to the right, or to the left by -kBits. Bits of the neighbours come in.
  template <int kBits>
  static HWY_INLINE Vec<D8> shift(Vec<D8> v) {
    const auto words = hn::BitCast(hn::Repartition<uint16_t, D8>(), v);
    if constexpr (kBits < 0) return hn::BitCast(D8(), hn::ShiftLeft<-kBits>(words));
    if constexpr (kBits > 0) return hn::BitCast(D8(), hn::ShiftRight<kBits>(words));
    return v;
  }
  // The tables of pair `at / 32` of quarters, for their weights from at % 32 on: one for each 16.
  static HWY_INLINE Vec<D8> make_table(const Header& h, size_t at) {
    const D8 d8;
    const hn::Repartition<uint16_t, D8> d16;
    const auto sub = hn::TableLookupBytesOr0(hn::LoadDup128(d8, h.sub), hn::Load(d8, kConstants.sub + at));
    const auto factor = hn::BitCast(d16, hn::LoadDup128(d8, kConstants.factor));
    const auto product = hn::BitCast(d8, hn::Mul(hn::BitCast(d16, sub), factor));
    return hn::Sub(product, hn::LoadDup128(d8, kConstants.offset));
  }
  // The indices in quarter 2 * kPair + kOdd, from byte k on.
  template <size_t kPair, size_t kOdd>
  static HWY_INLINE Vec<D8> indices(const uint8_t* p, size_t k) {
    const D8 d8;
    const auto fifteen = hn::Set(d8, 15);
    const auto two_pairs = hn::LoadU(d8, p + offsetof(BlockQ3_K, low) + kPair / 2 * 32 + k);
    const auto low = shift<kPair % 2 * 4>(two_pairs);
    const auto high = hn::LoadU(d8, p + offsetof(BlockQ3_K, high) + k);
#if HWY_TARGET == HWY_AVX3_DL
    // One instruction that Highway does not have, with indices of six bits; it ignores bits 6 and 7. Half of the vector
    // is empty: the 256-bit form has its table in two registers, for which some processors take three steps.
    const auto bits = hn::IfVecThenElse(fifteen, low, shift<2 * static_cast<int>(kPair) - 4>(high));
    const auto table = hn::Load(hn::Full512<uint8_t>(), kConstants.index[kOdd]);
    return Vec<D8>{_mm512_castsi512_si256(_mm512_permutexvar_epi8(_mm512_castsi256_si512(bits.raw), table.raw))};
#else
    const auto four_bits = hn::And(shift<kPair / 2 * 4>(high), fifteen);
    const auto both = hn::Or(hn::TableLookupBytes(hn::LoadDup128(d8, kConstants.low), hn::And(low, fifteen)),
                             hn::TableLookupBytes(hn::LoadDup128(d8, kConstants.high[kPair % 2]), four_bits));
    if constexpr (kOdd != 0) return hn::And(shift<4>(both), fifteen);
    return HWY_ARCH_X86 ? both : hn::And(both, fifteen);  // x86 ignores bits 4..6, and bit 7 is clear
#endif
  }
  template <class F>
  static HWY_INLINE void widen(F&& f, Vec<D8> bytes, size_t k) {
    widen_to(D16(), hn::BitCast(hn::RebindToSigned<D8>(), bytes), k, f);
  }

  template <size_t kUnit, class F>
  static HWY_INLINE void unit(const uint8_t* p, const Header& h, F&& f) {
    HWY_UNROLL(2)
    for (size_t k = 0; k < 32; k += hn::MaxLanes(D8())) {
      const auto table = make_table(h, 32 * kUnit + k);
      widen(f, hn::TableLookupBytes(table, indices<kUnit, 0>(p, k)), 64 * kUnit + k);
      widen(f, hn::TableLookupBytes(table, indices<kUnit, 1>(p, k)), 64 * kUnit + 32 + k);
    }
  }
};

#endif
WEIR_WEIGHT_KERNELS(Q3_K)
}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {
WEIR_EXPORT_WEIGHT_KERNELS(Q3_K)
}  // namespace weir::cpu
#endif
