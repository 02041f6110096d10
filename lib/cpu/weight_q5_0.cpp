// Vector decoder of Q5_0 (layout: quant/q5_0.h): nibbles as in Q4_0, and a fifth bit, which a mask of the lanes whose
// bit of `high` is set adds.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/weight_q5_0.cpp"
#include "cpu/simd_targets.h"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "cpu/weight_kernels-inl.h"
#include "quant/q5_0.h"

WEIR_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {
#if WEIR_VECTOR_KERNELS

struct DecoderQ5_0 : NibbleLanes {
  static constexpr Layout kLayout = Layout::kBlocks;
  static constexpr size_t kBlockBytes = sizeof(BlockQ5_0);
  static constexpr int8_t kOffset = 16;
  static constexpr bool kMinima = false;

#if HWY_CAP_GE512
  // 16 in the lanes whose bit is set, of the 16 bits at p and at next.
  static HWY_INLINE Vec<D16> fifth_bits(const uint8_t* p, const uint8_t* next) {
    uint8_t bits[8] = {};  // LoadMaskBits may read eight bytes
    std::memcpy(bits, p, 2);
    std::memcpy(bits + 2, next, 2);
    return hn::IfThenElseZero(hn::LoadMaskBits(D16(), bits), hn::Set(D16(), 16));
  }
#else
  static HWY_INLINE Vec<D16> fifth_bits(const uint8_t* p, const uint8_t*) {
    return hn::IfThenElseZero(hn::LoadMaskBits(D16(), p), hn::Set(D16(), 16));
  }
#endif

  template <bool kCentred, class F>
  static HWY_INLINE void blocks(const uint8_t* p, const uint8_t* next, F&& f) {
    constexpr size_t kHigh = offsetof(BlockQ5_0, high), kQ = offsetof(BlockQ5_0, q);
    const D16 d16;
    const auto offset = hn::Set(d16, kOffset);
    HWY_UNROLL(2)
    for (size_t k = 0; k < 16; k += hn::MaxLanes(Half())) {
      static_assert(hn::MaxLanes(Half()) >= 8, "a lane's bits begin at a byte");
      const auto nibbles = load_bytes(p + kQ + k, next + kQ + k);
      const auto low = hn::Or(hn::And(nibbles, hn::Set(d16, 15)), fifth_bits(p + kHigh + k / 8, next + kHigh + k / 8));
      const auto high = hn::Or(hn::ShiftRight<4>(nibbles), fifth_bits(p + kHigh + 2 + k / 8, next + kHigh + 2 + k / 8));
      f(kCentred ? hn::Sub(low, offset) : low, k);
      f(kCentred ? hn::Sub(high, offset) : high, k + 16);
    }
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
