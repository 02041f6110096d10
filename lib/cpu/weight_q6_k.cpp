// Vector decoder of Q6_K (layout: quant/q6_k.h): the low four and the high two bits are widened to 16-bit lanes and
// combined.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/weight_q6_k.cpp"
#include "cpu/simd_targets.h"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "cpu/weight_kernels-inl.h"
#include "quant/q6_k.h"

WEIR_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {
#if WEIR_VECTOR_KERNELS

struct DecoderQ6_K {
  static constexpr Layout kLayout = Layout::kSuperBlocks;
  static constexpr size_t kBlockBytes = sizeof(BlockQ6_K);
  static constexpr size_t kMinima = 0;
  static constexpr TileKind kKind = TileKind::kGroupScale16;  // 32 * 128 * 32767 * 16 < 2^31
  using D16 = hn::CappedTag<int16_t, 32>;
  struct Header {
    float scale;
    HWY_ALIGN uint32_t sub[16];  // sub-scales, as pairs of equal i16
  };

  static HWY_INLINE void header(const uint8_t* p, Header& h) {
    const hn::CappedTag<int32_t, 16> d32;
    const hn::Rebind<int8_t, decltype(d32)> d8;
    h.scale = load_f16(p + offsetof(BlockQ6_K, scale));
    const auto* sub = reinterpret_cast<const int8_t*>(p + offsetof(BlockQ6_K, sub_scales));
    for (size_t i = 0; i < 16; i += hn::MaxLanes(d32))
      store_pairs(hn::PromoteTo(d32, hn::LoadU(d8, sub + i)), h.sub + i);
  }

  template <size_t kUnit, class F>
  static HWY_INLINE void unit(const uint8_t* p, const Header& h, F&& f) {
    const D16 d16;
    const hn::Rebind<uint8_t, D16> d8;
    constexpr size_t kHalf = kUnit / 2, kHighNibble = kUnit % 2;
    const uint8_t* low = p + offsetof(BlockQ6_K, low) + 64 * kHalf;
    const uint8_t* high = p + offsetof(BlockQ6_K, high) + 32 * kHalf;
    const auto four_bits = hn::Set(d16, 15), high_bits = hn::Set(d16, 0x30), centre = hn::Set(d16, 32);
    HWY_UNROLL(2)
    for (size_t quarter = 0; quarter < 2; ++quarter) {
      HWY_UNROLL(4)
      for (size_t k = 0; k < 32; k += hn::MaxLanes(d16)) {
        const auto bytes = hn::PromoteTo(d16, hn::LoadU(d8, low + 32 * quarter + k));
        // The quarter's two bits are bits 2 * (2 * kHighNibble + quarter) and the next one; they are moved to bits 4
        // and 5.
        const auto bits = hn::ShiftLeft<4>(hn::PromoteTo(d16, hn::LoadU(d8, high + k)));
        const auto top =
            quarter == 0 ? hn::ShiftRight<4 * kHighNibble>(bits) : hn::ShiftRight<4 * kHighNibble + 2>(bits);
        const auto bottom = kHighNibble != 0 ? hn::ShiftRight<4>(bytes) : hn::And(bytes, four_bits);
        const auto q = hn::Sub(hn::Or(bottom, hn::And(top, high_bits)), centre);
        const size_t sub = 8 * kHalf + 4 * kHighNibble + 2 * quarter;
        f(hn::Mul(q, broadcast_halves(d16, h.sub + sub, k)), 64 * kUnit + 32 * quarter + k);
      }
    }
  }
};

#endif
WEIR_WEIGHT_KERNELS(Q6_K)
}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {
WEIR_EXPORT_WEIGHT_KERNELS(Q6_K)
}  // namespace weir::cpu
#endif
