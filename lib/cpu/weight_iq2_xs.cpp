// Vector decoder of IQ2_XS (layout: quant/iq2_xs.h).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/weight_iq2_xs.cpp"
#include "cpu/simd_targets.h"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "cpu/grid_rows-inl.h"
#include "quant/iq2_xs.h"

#ifndef WEIR_CPU_IQ2_XS_ENTRIES
#define WEIR_CPU_IQ2_XS_ENTRIES
namespace weir::cpu {
inline constexpr auto kEntriesIQ2_XS = grid2_table(kIq2XsGrid);
}  // namespace weir::cpu
#endif

WEIR_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {
#if WEIR_VECTOR_KERNELS

struct DecoderIQ2_XS {
  static constexpr TileKind kKind = TileKind::kGroupScale16;  // 43 * 31 * 32767 * 32 < 2^31
  static constexpr size_t kBlockBytes = sizeof(BlockIQ2_XS);
  static constexpr float kPart = 0.125f;
  static constexpr bool kHalfScales = true;

  static void unpack(const uint8_t* p, GridBlock& b) {
    const hn::CappedTag<uint16_t, 32> d16;
    const hn::Repartition<uint8_t, decltype(d16)> d8;
    const hn::Rebind<uint8_t, decltype(d16)> d_half;
    for (size_t i = 0; i < 32; i += hn::MaxLanes(d16)) {
      const auto q = hn::BitCast(d16, hn::LoadU(d8, p + offsetof(BlockIQ2_XS, q) + 2 * i));
      hn::Store(hn::And(q, hn::Set(d16, 511)), d16, b.index + i);
      const auto seven = hn::ShiftRight<9>(q);
      const auto odd = hn::ShiftLeft<7>(hn::And(hn::PopulationCount(seven), hn::Set(d16, 1)));
      hn::StoreU(hn::TruncateTo(d_half, hn::Or(seven, odd)), d_half, b.signs + i);
    }
    store_nibbles<8>(p + offsetof(BlockIQ2_XS, sub_scales), b);
#if HWY_TARGET == HWY_AVX3_DL
    look_up_eights(kIq2XsGrid, b);
#else
    look_up_eights(kEntriesIQ2_XS, b);
#endif
  }
};

#endif
WEIR_GRID_KERNELS(IQ2_XS)
}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {
HWY_EXPORT(kernels_IQ2_XS);
const WeightKernels& weight_kernels_IQ2_XS() { return HWY_DYNAMIC_DISPATCH(kernels_IQ2_XS)(); }
}  // namespace weir::cpu
#endif
