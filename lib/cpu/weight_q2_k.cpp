// Vector decoder of Q2_K (layout: quant/q2_k.h). A weight is one of four multiples of its sub-scale. They are looked up
// in tables of bytes and then widened; the minima need the sums of 16 activations.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/weight_q2_k.cpp"
#include "cpu/simd_targets.h"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "cpu/weight_kernels-inl.h"
#include "quant/q2_k.h"

WEIR_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {
#if WEIR_VECTOR_KERNELS

// Constants for making tables. Each half of a block has two, for weights 0..15 and 16..31 of its quarters (32 weights).
// An index has the quant in bits 0..1, and in bits 2..3 which quarter of the half it is.
struct ConstantsQ2_K {
  alignas(64) uint8_t sub[64];     // of all tables, the sub-scales as u16; a byte of 128 becomes 0
  alignas(16) uint8_t factor[16];  // pairs of bytes are multiplied at once; the products are below 256
};
constexpr ConstantsQ2_K make_constants_q2_k() {
  ConstantsQ2_K c = {};
  for (size_t i = 0; i < 64; ++i)
    c.sub[i] = static_cast<uint8_t>(i % 2 != 0 ? 128 : i / 32 * 8 + i / 4 % 4 * 2 + i / 16 % 2);
  for (size_t i = 0; i < 16; ++i) c.factor[i] = i % 4;
  return c;
}

struct DecoderQ2_K {
  static constexpr Layout kLayout = Layout::kSuperBlocks;
  static constexpr size_t kBlockBytes = sizeof(BlockQ2_K);
  static constexpr size_t kMinima = kHalves;
  static constexpr TileKind kKind = TileKind::kGroupHalfMinima64;  // 3 * 15 * 32767 * 64 < 2^31
  using D16 = hn::CappedTag<int16_t, 32>;
  using D8 = hn::CappedTag<uint8_t, 32>;
  static constexpr ConstantsQ2_K kConstants = make_constants_q2_k();
  struct Header {
    HWY_ALIGN uint8_t sub[kHalves];
    float scale, min_scale;
    uint8_t minima[kHalves];  // times min_scale
  };

  static HWY_INLINE void header(const uint8_t* p, Header& h) {
    h.scale = load_f16(p + offsetof(BlockQ2_K, scale));
    h.min_scale = load_f16(p + offsetof(BlockQ2_K, min_scale));
    const hn::Full128<uint8_t> d128;
    const auto bytes = hn::LoadU(d128, p + offsetof(BlockQ2_K, sub_scales));
    hn::StoreU(hn::ShiftRight<4>(bytes), d128, h.minima);
    hn::Store(hn::And(bytes, hn::Set(d128, 15)), d128, h.sub);
  }

  template <size_t kUnit, class F>
  static HWY_INLINE void unit(const uint8_t* p, const Header& h, F&& f) {
    quarter<2 * kUnit>(p, h, f);
    quarter<2 * kUnit + 1>(p, h, f);
  }
  // Weights 32 * kQuarter and the next 31.
  template <size_t kQuarter, class F>
  static HWY_INLINE void quarter(const uint8_t* p, const Header& h, F&& f) {
    const D8 d8;
    const hn::Repartition<uint16_t, D8> d_words;
    constexpr size_t kFirst = kQuarter / 4 * 32;  // byte
    constexpr size_t kShift = kQuarter % 4 * 2;
    const auto factor = hn::BitCast(d_words, hn::LoadDup128(d8, kConstants.factor));
    HWY_UNROLL(2)
    for (size_t k = 0; k < 32; k += hn::MaxLanes(d8)) {
      const auto sub = hn::TableLookupBytesOr0(hn::LoadDup128(d8, h.sub), hn::Load(d8, kConstants.sub + kFirst + k));
      const auto table = hn::BitCast(d8, hn::Mul(hn::BitCast(d_words, sub), factor));
      const auto bytes = hn::BitCast(d_words, hn::LoadU(d8, p + offsetof(BlockQ2_K, q) + kFirst + k));
      const auto bits = hn::BitCast(d8, hn::ShiftRight<kShift>(bytes));
      const auto index = hn::OrAnd(hn::Set(d8, 2 * kShift), bits, hn::Set(d8, 3));
      widen_to(D16(), hn::BitCast(hn::RebindToSigned<D8>(), hn::TableLookupBytes(table, index)), 32 * kQuarter + k, f);
    }
  }
};

#endif
WEIR_WEIGHT_KERNELS(Q2_K)
}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {
WEIR_EXPORT_WEIGHT_KERNELS(Q2_K)
}  // namespace weir::cpu
#endif
