// Vector decoder of IQ3_XXS (layout: quant/iq3_xxs.h).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/weight_iq3_xxs.cpp"
#include "cpu/simd_targets.h"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "cpu/grid_rows-inl.h"
#include "quant/iq3_xxs.h"

#ifndef WEIR_CPU_IQ3_XXS_ENTRIES
#define WEIR_CPU_IQ3_XXS_ENTRIES
namespace weir::cpu {
inline constexpr auto kEntriesIQ3_XXS = grid3_table(kIq3XxsGrid, kIq3XxsValues);
inline constexpr auto kHalvesIQ3_XXS = grid3_halves(kIq3XxsGrid);
}  // namespace weir::cpu
#endif

WEIR_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {
#if WEIR_VECTOR_KERNELS

struct DecoderIQ3_XXS {
  static constexpr TileKind kKind = TileKind::kGroupScale64;  // 31 * 31 * 32767 * 64 < 2^31
  static constexpr size_t kBlockBytes = sizeof(BlockIQ3_XXS);
  static constexpr float kPart = 0.5f;
  static constexpr bool kHalfScales = false;

  static void unpack(const uint8_t* p, GridBlock& b) {
    const uint8_t* q = p + offsetof(BlockIQ3_XXS, q);
    const uint8_t* sub = p + offsetof(BlockIQ3_XXS, sub);
    const hn::CappedTag<uint32_t, 8> d32;
    const hn::Repartition<uint8_t, decltype(d32)> d8;
    for (size_t s = 0; s < 8; s += hn::MaxLanes(d32)) {
      const auto words = hn::BitCast(d32, hn::LoadU(d8, sub + 4 * s));
      hn::Store(hn::BitCast(d8, even_signs(words)), d8, b.signs + 4 * s);
      store_odd(hn::ShiftRight<28>(words), b.sub + s);
    }
#if HWY_TARGET == HWY_AVX3_DL
    look_up_fours(kHalvesIQ3_XXS, kIq3XxsValues, q, 0, b);
#else
    store_bytes<64>(q, b.index);
    look_up_fours(kEntriesIQ3_XXS, b);
#endif
  }
};

#endif
WEIR_GRID_KERNELS(IQ3_XXS)
}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {
HWY_EXPORT(kernels_IQ3_XXS);
const WeightKernels& weight_kernels_IQ3_XXS() { return HWY_DYNAMIC_DISPATCH(kernels_IQ3_XXS)(); }
}  // namespace weir::cpu
#endif
