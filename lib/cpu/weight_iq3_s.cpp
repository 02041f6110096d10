// Vector decoder of IQ3_S (layout: quant/iq3_s.h).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/weight_iq3_s.cpp"
#include "cpu/simd_targets.h"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "cpu/grid_rows-inl.h"
#include "quant/iq3_s.h"

#ifndef WEIR_CPU_IQ3_S_ENTRIES
#define WEIR_CPU_IQ3_S_ENTRIES
namespace weir::cpu {
inline constexpr auto kEntriesIQ3_S = grid3_table(kIq3SGrid, kIq3SValues);
inline constexpr auto kHalvesIQ3_S = grid3_halves(kIq3SGrid);
}  // namespace weir::cpu
#endif

WEIR_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {
#if WEIR_VECTOR_KERNELS

struct DecoderIQ3_S {
  static constexpr TileKind kKind = TileKind::kGroupScale64;  // 15 * 31 * 32767 * 64 < 2^31
  static constexpr size_t kBlockBytes = sizeof(BlockIQ3_S);
  static constexpr float kPart = 1.0f;
  static constexpr bool kHalfScales = false;

  static void unpack(const uint8_t* p, GridBlock& b) {
    const uint8_t *q = p + offsetof(BlockIQ3_S, q), *high = p + offsetof(BlockIQ3_S, high);
    std::memcpy(b.signs, p + offsetof(BlockIQ3_S, signs), kGroup / 8);
    store_nibbles<4>(p + offsetof(BlockIQ3_S, sub_scales), b);
#if HWY_TARGET == HWY_AVX3_DL
    look_up_fours(kHalvesIQ3_S, kIq3SValues, q, load_word(high), b);
#else
    const hn::CappedTag<uint16_t, 32> d16;
    for (size_t i = 0; i < 64; i += hn::MaxLanes(d16)) {
      const auto low = hn::PromoteTo(d16, hn::LoadU(hn::Rebind<uint8_t, decltype(d16)>(), q + i));
      const auto ninth = hn::IfThenElseZero(hn::LoadMaskBits(d16, high + i / 8), hn::Set(d16, 256));
      hn::Store(hn::Or(low, ninth), d16, b.index + i);
    }
    look_up_fours(kEntriesIQ3_S, b);
#endif
  }
};

#endif
WEIR_GRID_KERNELS(IQ3_S)
}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {
HWY_EXPORT(kernels_IQ3_S);
const WeightKernels& weight_kernels_IQ3_S() { return HWY_DYNAMIC_DISPATCH(kernels_IQ3_S)(); }
}  // namespace weir::cpu
#endif
