// Vector decoder of Q4_1 (layout: quant/q4_1.h): nibbles as in Q4_0; the minima are added with the sums of the
// activations.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/weight_q4_1.cpp"
#include "cpu/simd_targets.h"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "cpu/nibble_lanes-inl.h"
#include "cpu/weight_kernels-inl.h"
#include "quant/q4_1.h"

WEIR_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {
#if WEIR_VECTOR_KERNELS

struct DecoderQ4_1 : NibbleLanes {
  static constexpr Layout kLayout = Layout::kBlocks;
  static constexpr size_t kBlockBytes = sizeof(BlockQ4_1);
  static constexpr int8_t kOffset = 0;
  static constexpr size_t kMinima = kSubs;

  template <bool, class F>
  static HWY_INLINE void blocks(const uint8_t* p, const uint8_t* next, F&& f) {
    const D16 d16;
    HWY_UNROLL(2)
    for (size_t k = 0; k < 16; k += hn::MaxLanes(Half())) {
      const auto nibbles = load_bytes(p + offsetof(BlockQ4_1, q) + k, next + offsetof(BlockQ4_1, q) + k);
      f(hn::And(nibbles, hn::Set(d16, 15)), k);
      f(hn::ShiftRight<4>(nibbles), k + 16);
    }
  }
};

#endif
WEIR_WEIGHT_KERNELS(Q4_1)
}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {
WEIR_EXPORT_WEIGHT_KERNELS(Q4_1)
}  // namespace weir::cpu
#endif
