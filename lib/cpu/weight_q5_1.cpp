// Vector decoder of Q5_1 (layout: quant/q5_1.h): five bits as in Q5_0; the minima are added with the sums
// of the activations.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/weight_q5_1.cpp"
#include "cpu/simd_targets.h"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "cpu/nibble_lanes-inl.h"
#include "cpu/weight_kernels-inl.h"
#include "quant/q5_1.h"

WEIR_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {
#if WEIR_VECTOR_KERNELS

struct DecoderQ5_1 : NibbleLanes {
  static constexpr Layout kLayout = Layout::kBlocks;
  static constexpr size_t kBlockBytes = sizeof(BlockQ5_1);
  static constexpr int8_t kOffset = 0;
  static constexpr size_t kMinima = kSubs;

  template <bool, class F>
  static HWY_INLINE void blocks(const uint8_t* p, const uint8_t* next, F&& f) {
    five_bits<offsetof(BlockQ5_1, high), offsetof(BlockQ5_1, q)>(p, next, f);
  }
};

#endif
WEIR_WEIGHT_KERNELS(Q5_1)
}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {
WEIR_EXPORT_WEIGHT_KERNELS(Q5_1)
}  // namespace weir::cpu
#endif
