// Vector decoder of Q4_0 (layout: quant/q4_0.h): 16 bytes widened to 16-bit lanes, whose low and high four bits are weights 0..15 and 16..31.
// 256-bit vectors hold exactly that, so longer ones would only add shuffles.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/weight_q4_0.cpp"
#include "cpu/simd_targets.h"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "cpu/weight_kernels-inl.h"
#include "quant/q4_0.h"

WEIR_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {
#if WEIR_VECTOR_KERNELS

struct DecoderQ4_0 {
  static constexpr Layout kLayout = Layout::kBlocks;
  static constexpr size_t kBlockBytes = sizeof(BlockQ4_0);
  using D16 = hn::CappedTag<int16_t, 16>;

  template <class F>
  static HWY_INLINE void block(const uint8_t* p, F&& f) {
    const D16 d16;
    const hn::Rebind<uint8_t, D16> d8;
    const uint8_t* q = p + offsetof(BlockQ4_0, q);
    HWY_UNROLL(2)
    for (size_t k = 0; k < 16; k += hn::MaxLanes(d16)) {
      const auto bytes = hn::PromoteTo(d16, hn::LoadU(d8, q + k));
      f(hn::Sub(hn::And(bytes, hn::Set(d16, 15)), hn::Set(d16, 8)), k);
      f(hn::Sub(hn::ShiftRight<4>(bytes), hn::Set(d16, 8)), k + 16);
    }
  }
};

#endif
WEIR_WEIGHT_KERNELS(Q4_0)
}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {
WEIR_EXPORT_WEIGHT_KERNELS(Q4_0)
}  // namespace weir::cpu
#endif
