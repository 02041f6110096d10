// Vector decoder of Q4_K (layout: quant/q4_k.h): 32 bytes, widened to 16-bit lanes, give two sub-blocks, in their low
// and high nibbles.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/weight_q4_k.cpp"
#include "cpu/simd_targets.h"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "cpu/weight_kernels-inl.h"
#include "quant/q4_k.h"

WEIR_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {
#if WEIR_VECTOR_KERNELS

struct DecoderQ4_K {
  static constexpr Layout kLayout = Layout::kSuperBlocks;
  static constexpr size_t kBlockBytes = sizeof(BlockQ4_K);
  static constexpr size_t kMinima = kSubs;
  static constexpr TileKind kKind = TileKind::kGroupMinima64;  // 15 * 63 * 32767 * 64 < 2^31
  using D16 = hn::CappedTag<int16_t, 32>;
  using Header = KHeader;

  static HWY_INLINE void header(const uint8_t* p, Header& h) { load_k_header(p, h); }

  template <size_t kUnit, class F>
  static HWY_INLINE void unit(const uint8_t* p, const Header& h, F&& f) {
    const D16 d16;
    const hn::Rebind<uint8_t, D16> d8;
    const uint8_t* q = p + offsetof(BlockQ4_K, q) + 32 * kUnit;
    const auto even = broadcast_pair(d16, h.sub[2 * kUnit]), odd = broadcast_pair(d16, h.sub[2 * kUnit + 1]);
    HWY_UNROLL(4)
    for (size_t k = 0; k < 32; k += hn::MaxLanes(d16)) {
      const auto bytes = hn::PromoteTo(d16, hn::LoadU(d8, q + k));
      f(hn::Mul(hn::And(bytes, hn::Set(d16, 15)), even), 64 * kUnit + k);
      f(hn::Mul(hn::ShiftRight<4>(bytes), odd), 64 * kUnit + 32 + k);
    }
  }
};

#endif
WEIR_WEIGHT_KERNELS(Q4_K)
}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {
WEIR_EXPORT_WEIGHT_KERNELS(Q4_K)
}  // namespace weir::cpu
#endif
