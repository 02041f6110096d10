// Vector decoder of Q4_0 (layout: quant/q4_0.h): 16 bytes are widened to 16-bit lanes, whose low and high nibbles are
// weights 0..15 and 16..31.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/weight_q4_0.cpp"
#include "cpu/simd_targets.h"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "cpu/nibble_lanes-inl.h"
#include "cpu/weight_kernels-inl.h"
#include "quant/q4_0.h"

WEIR_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {
#if WEIR_VECTOR_KERNELS

struct DecoderQ4_0 : NibbleLanes {
  static constexpr Layout kLayout = Layout::kBlocks;
  static constexpr size_t kBlockBytes = sizeof(BlockQ4_0);
  static constexpr int8_t kOffset = 8;
  static constexpr size_t kMinima = 0;

  template <bool kCentred, class F>
  static HWY_INLINE void blocks(const uint8_t* p, const uint8_t* next, F&& f) {
    const D16 d16;
    const auto offset = hn::Set(d16, kOffset);
    HWY_UNROLL(2)
    for (size_t k = 0; k < 16; k += hn::MaxLanes(Half())) {
      const auto nibbles = load_bytes(p + offsetof(BlockQ4_0, q) + k, next + offsetof(BlockQ4_0, q) + k);
      const auto low = hn::And(nibbles, hn::Set(d16, 15)), high = hn::ShiftRight<4>(nibbles);
      f(kCentred ? hn::Sub(low, offset) : low, k);
      f(kCentred ? hn::Sub(high, offset) : high, k + 16);
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
