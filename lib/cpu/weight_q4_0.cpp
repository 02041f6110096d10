// Vector decoder of Q4_0 (layout: quant/q4_0.h): 16 bytes are widened to 16-bit lanes, whose low and high nibbles are
// weights 0..15 and 16..31. 512-bit vectors hold two blocks side by side, so that no lane is idle and no shuffle is
// needed.
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
  static constexpr int8_t kOffset = 8;
#if HWY_CAP_GE512
  using D16 = hn::CappedTag<int16_t, 32>;
  using Half = hn::Half<D16>;
  static constexpr size_t kAtOnce = 2;

  static HWY_INLINE Vec<D16> numbers(const int16_t* q, size_t key) {
    return hn::Combine(D16(), hn::Load(Half(), q + 32 + key), hn::Load(Half(), q + key));
  }
  static HWY_INLINE void store(Vec<D16> v, int16_t* q, size_t key) {
    hn::Store(hn::LowerHalf(Half(), v), Half(), q + key);
    hn::Store(hn::UpperHalf(Half(), v), Half(), q + 32 + key);
  }
  static HWY_INLINE Vec<D16> load_bytes(const uint8_t* p, const uint8_t* next) {
    const hn::Rebind<uint8_t, D16> d8;
    return hn::PromoteTo(
        D16(), hn::Combine(d8, hn::LoadU(hn::Half<decltype(d8)>(), next), hn::LoadU(hn::Half<decltype(d8)>(), p)));
  }
#else
  using D16 = hn::CappedTag<int16_t, 16>;
  using Half = D16;
  static constexpr size_t kAtOnce = 1;

  static HWY_INLINE Vec<D16> numbers(const int16_t* q, size_t key) { return hn::Load(D16(), q + key); }
  static HWY_INLINE void store(Vec<D16> v, int16_t* q, size_t key) { hn::Store(v, D16(), q + key); }
  static HWY_INLINE Vec<D16> load_bytes(const uint8_t* p, const uint8_t*) {
    return hn::PromoteTo(D16(), hn::LoadU(hn::Rebind<uint8_t, D16>(), p));
  }
#endif

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
