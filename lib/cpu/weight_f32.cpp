// Vector decoder of F32 (layout: quant/f32.h).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/weight_f32.cpp"
#include "cpu/simd_targets.h"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "cpu/weight_kernels-inl.h"

WEIR_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {
#if WEIR_VECTOR_KERNELS

struct DecoderF32 {
  static constexpr Layout kLayout = Layout::kFloats;
  static constexpr size_t kBytes = sizeof(float);

  template <class D>
  static HWY_INLINE Vec<D> load(D d, const uint8_t* p) {
    // Loaded as bytes: tensors in a file need not be aligned to their type.
    const hn::Repartition<uint8_t, D> d8;
    return hn::BitCast(d, hn::LoadU(d8, p));
  }
  static HWY_INLINE float one(const uint8_t* p) {
    float f;
    std::memcpy(&f, p, sizeof f);
    return f;
  }
};

#endif
WEIR_WEIGHT_KERNELS(F32)
}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {
WEIR_EXPORT_WEIGHT_KERNELS(F32)
}  // namespace weir::cpu
#endif
