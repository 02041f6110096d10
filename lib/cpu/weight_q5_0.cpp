// Vector decoder of Q5_0 (layout: quant/q5_0.h): nibbles as in Q4_0, and a fifth bit, which a mask of the lanes whose
// bit of `high` is set adds.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/weight_q5_0.cpp"
#include "cpu/simd_targets.h"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "cpu/nibble_lanes-inl.h"
#include "cpu/weight_kernels-inl.h"
#include "quant/q5_0.h"

WEIR_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {
#if WEIR_VECTOR_KERNELS

struct DecoderQ5_0 : NibbleLanes {
  static constexpr Layout kLayout = Layout::kBlocks;
  static constexpr size_t kBlockBytes = sizeof(BlockQ5_0);
  static constexpr int8_t kOffset = 16;
  static constexpr size_t kMinima = 0;

  template <bool kCentred, class F>
  static HWY_INLINE void blocks(const uint8_t* p, const uint8_t* next, F&& f) {
    five_bits<offsetof(BlockQ5_0, high), offsetof(BlockQ5_0, q)>(
        p, next, [&](auto w, size_t key) WEIR_ATTR { f(kCentred ? hn::Sub(w, hn::Set(D16(), kOffset)) : w, key); });
  }
};

#endif
WEIR_WEIGHT_KERNELS(Q5_0)
}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {
WEIR_EXPORT_WEIGHT_KERNELS(Q5_0)
}  // namespace weir::cpu
#endif
