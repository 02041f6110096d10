// Vector decoder of Q5_K (layout: quant/q5_k.h): as Q4_K, with a fifth bit from the 32 bytes that all sub-blocks share.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/weight_q5_k.cpp"
#include "cpu/simd_targets.h"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "cpu/weight_kernels-inl.h"
#include "quant/q5_k.h"

WEIR_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {
#if WEIR_VECTOR_KERNELS

struct DecoderQ5_K {
  static constexpr Layout kLayout = Layout::kSuperBlocks;
  static constexpr size_t kBlockBytes = sizeof(BlockQ5_K);
  static constexpr size_t kMinima = kSubs;
  static constexpr TileKind kKind = TileKind::kGroupMinima32;  // 31 * 63 * 32767 * 32 < 2^31
  using D16 = hn::CappedTag<int16_t, 32>;
  using Header = KHeader;

  static HWY_INLINE void header(const uint8_t* p, Header& h) { load_k_header(p, h); }

  template <size_t kUnit, class F>
  static HWY_INLINE void unit(const uint8_t* p, const Header& h, F&& f) {
    const D16 d16;
    const hn::Rebind<uint8_t, D16> d8;
    const uint8_t* q = p + offsetof(BlockQ5_K, q) + 32 * kUnit;
    const uint8_t* high = p + offsetof(BlockQ5_K, high);
    const auto even = broadcast_pair(d16, h.sub[2 * kUnit]), odd = broadcast_pair(d16, h.sub[2 * kUnit + 1]);
    const auto low_bits = hn::Set(d16, 15), bit4 = hn::Set(d16, 16);
    HWY_UNROLL(4)
    for (size_t k = 0; k < 32; k += hn::MaxLanes(d16)) {
      const auto bytes = hn::PromoteTo(d16, hn::LoadU(d8, q + k));
      // Bit 4 of every sub-block s is bit s of `high`. Here it is kept as bit s + 4, so that all shifts go to the
      // right.
      const auto bits = hn::ShiftLeft<4>(hn::PromoteTo(d16, hn::LoadU(d8, high + k)));
      const auto even_bit = hn::And(hn::ShiftRight<2 * kUnit>(bits), bit4),
                 odd_bit = hn::And(hn::ShiftRight<2 * kUnit + 1>(bits), bit4);
      f(hn::Mul(hn::Or(hn::And(bytes, low_bits), even_bit), even), 64 * kUnit + k);
      f(hn::Mul(hn::Or(hn::ShiftRight<4>(bytes), odd_bit), odd), 64 * kUnit + 32 + k);
    }
  }
};

#endif
WEIR_WEIGHT_KERNELS(Q5_K)
}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {
WEIR_EXPORT_WEIGHT_KERNELS(Q5_K)
}  // namespace weir::cpu
#endif
