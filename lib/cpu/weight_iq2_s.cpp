// Vector decoder of IQ2_S (layout: quant/iq2_s.h).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/weight_iq2_s.cpp"
#include "cpu/simd_targets.h"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "cpu/grid_rows-inl.h"
#include "quant/iq2_s.h"

#ifndef WEIR_CPU_IQ2_S_ENTRIES
#define WEIR_CPU_IQ2_S_ENTRIES
namespace weir::cpu {
inline constexpr auto kEntriesIQ2_S = grid2_table(kIq2SGrid);
}  // namespace weir::cpu
#endif

WEIR_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {
#if WEIR_VECTOR_KERNELS

struct DecoderIQ2_S {
  static constexpr TileKind kKind = TileKind::kGroupScale16;  // 43 * 31 * 32767 * 32 < 2^31
  static constexpr size_t kBlockBytes = sizeof(BlockIQ2_S);
  static constexpr float kPart = 0.125f;
  static constexpr bool kHalfScales = true;

  static void unpack(const uint8_t* p, GridBlock& b) {
    const hn::CappedTag<uint16_t, 32> d16;
    const hn::Repartition<uint8_t, decltype(d16)> d8;
    const uint8_t *q = p + offsetof(BlockIQ2_S, q), *high = p + offsetof(BlockIQ2_S, high);
    // The byte of each entry's highest bits, from every 128 bits, and what moves them to bits 8..9.
    alignas(64) static constexpr uint8_t kByte[64] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2,
                                                      2, 2, 3, 3, 3, 3, 3, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4, 4, 5, 5, 5, 5,
                                                      5, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 6, 7, 7, 7, 7, 7, 7, 7, 7};
    alignas(16) static constexpr uint16_t kTimes[8] = {256, 64, 16, 4, 256, 64, 16, 4};
    const auto bytes = hn::BitCast(d8, hn::Set(hn::Repartition<uint64_t, decltype(d16)>(), load_word(high)));
    for (size_t i = 0; i < 32; i += hn::MaxLanes(d16)) {
      const auto low = hn::PromoteTo(d16, hn::LoadU(hn::Rebind<uint8_t, decltype(d16)>(), q + i));
      const auto twice = hn::TableLookupBytes(bytes, hn::Load(d8, kByte + 2 * i));
      const auto four = hn::And(hn::BitCast(d16, twice), hn::Set(d16, 255));
      const auto moved = hn::Mul(four, hn::LoadDup128(d16, kTimes));
      hn::Store(hn::OrAnd(low, moved, hn::Set(d16, 0x300)), d16, b.index + i);
    }
    std::memcpy(b.signs, p + offsetof(BlockIQ2_S, signs), kGroup / 8);
    store_nibbles<8>(p + offsetof(BlockIQ2_S, sub_scales), b);
    look_up_eights(kEntriesIQ2_S, b);
  }
};

#endif
WEIR_GRID_KERNELS(IQ2_S)
}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {
HWY_EXPORT(kernels_IQ2_S);
const WeightKernels& weight_kernels_IQ2_S() { return HWY_DYNAMIC_DISPATCH(kernels_IQ2_S)(); }
}  // namespace weir::cpu
#endif
