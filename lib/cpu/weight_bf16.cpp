// Vector decoder of BF16 (layout: quant/bf16.h).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/weight_bf16.cpp"
#include "cpu/simd_targets.h"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "cpu/weight_kernels-inl.h"
#include "quant/half.h"

WEIR_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {
#if WEIR_VECTOR_KERNELS

struct DecoderBF16 {
  static constexpr Layout kLayout = Layout::kFloats;
  static constexpr size_t kBytes = sizeof(uint16_t);

  template <class D>
  static HWY_INLINE Vec<D> load(D d, const uint8_t* p) {
    const hn::Rebind<hwy::bfloat16_t, D> dh;
    // Loaded as bytes: tensors in a file need not be aligned to their type.
    const hn::Repartition<uint8_t, decltype(dh)> d8;
    return hn::PromoteTo(d, hn::BitCast(dh, hn::LoadU(d8, p)));
  }
  static HWY_INLINE float one(const uint8_t* p) {
    uint16_t h;
    std::memcpy(&h, p, sizeof h);
    return bf16_to_f32(h);
  }
};

#endif
WEIR_WEIGHT_KERNELS(BF16)
}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {
WEIR_EXPORT_WEIGHT_KERNELS(BF16)
}  // namespace weir::cpu
#endif
