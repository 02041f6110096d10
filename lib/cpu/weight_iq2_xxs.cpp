// Vector decoder of IQ2_XXS (layout: quant/iq2_xxs.h).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/weight_iq2_xxs.cpp"
#include "cpu/simd_targets.h"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "cpu/grid_rows-inl.h"
#include "quant/iq2_xxs.h"

#ifndef WEIR_CPU_IQ2_XXS_ENTRIES
#define WEIR_CPU_IQ2_XXS_ENTRIES
namespace weir::cpu {
inline constexpr auto kEntriesIQ2_XXS = grid2_table(kIq2XxsGrid);
}  // namespace weir::cpu
#endif

WEIR_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {
#if WEIR_VECTOR_KERNELS

struct DecoderIQ2_XXS {
  static constexpr TileKind kKind = TileKind::kGroupScale16;  // 43 * 31 * 32767 * 32 < 2^31
  static constexpr size_t kBlockBytes = sizeof(BlockIQ2_XXS);
  static constexpr float kPart = 0.125f;
  static constexpr bool kHalfScales = false;

  static void unpack(const uint8_t* p, GridBlock& b) {
    const hn::CappedTag<uint64_t, 8> d64;
    const hn::Repartition<uint8_t, decltype(d64)> d8;
    const hn::Rebind<uint32_t, decltype(d64)> d32;
    const hn::Repartition<uint8_t, decltype(d32)> d8_half;
    alignas(32) uint8_t q[32];
    for (size_t s = 0; s < 8; s += hn::MaxLanes(d64)) {
      const auto both = hn::BitCast(d64, hn::LoadU(d8, p + offsetof(BlockIQ2_XXS, sub) + 8 * s));
      hn::Store(hn::BitCast(d8_half, hn::TruncateTo(d32, both)), d8_half, q + 4 * s);
      const auto words = hn::ShiftRight<32>(both);
      hn::Store(hn::BitCast(d8_half, hn::TruncateTo(d32, even_signs(words))), d8_half, b.signs + 4 * s);
      store_odd(hn::TruncateTo(d32, hn::ShiftRight<28>(words)), b.sub + s);
    }
    store_bytes<32>(q, b.index);
#if HWY_TARGET == HWY_AVX3_DL
    look_up_eights(kIq2XxsGrid, b);
#else
    look_up_eights(kEntriesIQ2_XXS, b);
#endif
  }
};

#endif
WEIR_GRID_KERNELS(IQ2_XXS)
}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {
HWY_EXPORT(kernels_IQ2_XXS);
const WeightKernels& weight_kernels_IQ2_XXS() { return HWY_DYNAMIC_DISPATCH(kernels_IQ2_XXS)(); }
}  // namespace weir::cpu
#endif
