// Vector decoder of Q2_K (layout: quant/q2_k.h): two bits are widened to 16-bit lanes and multiplied by
// their sub-scales; the minima need the sums of 16 activations.
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

struct DecoderQ2_K {
  static constexpr Layout kLayout = Layout::kSuperBlocks;
  static constexpr size_t kBlockBytes = sizeof(BlockQ2_K);
  static constexpr size_t kMinima = kHalves;
  static constexpr TileKind kKind = TileKind::kGroupHalfMinima64;  // 3 * 15 * 32767 * 64 < 2^31
  using D16 = hn::CappedTag<int16_t, 32>;
  struct Header {
    HWY_ALIGN uint32_t sub[kHalves];  // sub-scales, as pairs of equal i16
    float scale, min_scale;
    uint8_t minima[kHalves];  // times min_scale
  };

  static HWY_INLINE void header(const uint8_t* p, Header& h) {
    h.scale = load_f16(p + offsetof(BlockQ2_K, scale));
    h.min_scale = load_f16(p + offsetof(BlockQ2_K, min_scale));
    const hn::Full128<uint8_t> d128;
    const auto bytes = hn::LoadU(d128, p + offsetof(BlockQ2_K, sub_scales));
    hn::StoreU(hn::ShiftRight<4>(bytes), d128, h.minima);
    const hn::CappedTag<int32_t, kHalves> d32;
    const hn::Rebind<uint8_t, decltype(d32)> d8;
    for (size_t i = 0; i < kHalves; i += hn::MaxLanes(d32)) {
      const auto both = hn::PromoteTo(d32, hn::LoadU(d8, p + offsetof(BlockQ2_K, sub_scales) + i));
      store_pairs(hn::And(both, hn::Set(d32, 15)), h.sub + i);
    }
  }

  template <size_t kUnit, class F>
  static HWY_INLINE void unit(const uint8_t* p, const Header& h, F&& f) {
    quarter<2 * kUnit>(p, h, f);
    quarter<2 * kUnit + 1>(p, h, f);
  }
  // Weights 32 * kQuarter and the next 31.
  template <size_t kQuarter, class F>
  static HWY_INLINE void quarter(const uint8_t* p, const Header& h, F&& f) {
    const D16 d16;
    const hn::Rebind<uint8_t, D16> d8;
    const uint8_t* q = p + offsetof(BlockQ2_K, q) + kQuarter / 4 * 32;
    HWY_UNROLL(4)
    for (size_t k = 0; k < 32; k += hn::MaxLanes(d16)) {
      const auto bytes = hn::PromoteTo(d16, hn::LoadU(d8, q + k));
      const auto numbers = hn::And(hn::ShiftRight<kQuarter % 4 * 2>(bytes), hn::Set(d16, 3));
      f(hn::Mul(numbers, broadcast_halves(d16, h.sub + 2 * kQuarter, k)), 32 * kQuarter + k);
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
