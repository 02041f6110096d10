// Vector decoder of Q8_0 (layout: quant/q8_0.h): 32 signed bytes widened.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/weight_q8_0.cpp"
#include "cpu/simd_targets.h"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "cpu/weight_kernels-inl.h"
#include "quant/q8_0.h"

WEIR_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {
#if WEIR_VECTOR_KERNELS

struct DecoderQ8_0 {
  static constexpr Layout kLayout = Layout::kBlocks;
  static constexpr size_t kBlockBytes = sizeof(BlockQ8_0);
  static constexpr int8_t kOffset = 0;
  static constexpr size_t kMinima = 0;
  using D16 = hn::CappedTag<int16_t, 32>;

  static constexpr size_t kAtOnce = 1;

  template <bool kCentred, class F>
  static HWY_INLINE void blocks(const uint8_t* p, const uint8_t*, F&& f) {
    const D16 d16;
    const hn::Rebind<int8_t, D16> d8;
    const auto* q = reinterpret_cast<const int8_t*>(p + offsetof(BlockQ8_0, q));
    HWY_UNROLL(4)
    for (size_t k = 0; k < 32; k += hn::MaxLanes(d16)) f(hn::PromoteTo(d16, hn::LoadU(d8, q + k)), k);
  }
  static HWY_INLINE Vec<D16> numbers(const int16_t* q, size_t key) { return hn::Load(D16(), q + key); }
  static HWY_INLINE void store(Vec<D16> v, int16_t* q, size_t key) { hn::Store(v, D16(), q + key); }
};

#endif
WEIR_WEIGHT_KERNELS(Q8_0)
}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {
WEIR_EXPORT_WEIGHT_KERNELS(Q8_0)
}  // namespace weir::cpu
#endif
