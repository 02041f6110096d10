// Vector decoder of NVFP4 (layout: quant/nvfp4.h). Its scales have 15 powers of two, which no integer sub-scale of 16
// bits has; so weights are multiplied as f32. Scales are looked up.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/weight_nvfp4.cpp"
#include "cpu/simd_targets.h"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "cpu/weight_kernels-inl.h"
#include "quant/nvfp4.h"

#ifndef WEIR_CPU_NVFP4_SCALES
#define WEIR_CPU_NVFP4_SCALES
namespace weir::cpu {
struct Nvfp4Scales {
  float of[256];
};
inline constexpr Nvfp4Scales kNvfp4Scales = [] {
  Nvfp4Scales s = {};
  for (size_t i = 0; i < 256; ++i) s.of[i] = nvfp4_scale(static_cast<uint8_t>(i));
  return s;
}();
}  // namespace weir::cpu
#endif

WEIR_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {
#if WEIR_VECTOR_KERNELS

struct DecoderNVFP4 {
  static constexpr Layout kLayout = Layout::kFloats;
  static constexpr size_t kBlockWeights = BlockNVFP4::kWeights;
  static constexpr size_t kGroupBytes = kGroup / kBlockWeights * sizeof(BlockNVFP4);

  // The lowest lanes of a vector of 16.
  template <class D>
  static HWY_INLINE Vec<D> lowest(D d, Vec<hn::Full128<int8_t>> v) {
    if constexpr (hn::MaxLanes(d) == 8) return hn::LowerHalf(d, v);
    if constexpr (hn::MaxLanes(d) == 4) return hn::LowerHalf(d, hn::LowerHalf(hn::Twice<D>(), v));
  }
  template <class D>
  static HWY_INLINE Vec<D> load(D d, const uint8_t* p, size_t k) {
    constexpr size_t kLanes = hn::MaxLanes(d);
    static_assert(kLanes <= 16);
    const uint8_t* block = p + k / kBlockWeights * sizeof(BlockNVFP4);
    const size_t sub = k / 16 % 4;
    const uint8_t* q = block + offsetof(BlockNVFP4, q) + 8 * sub;
#if HWY_CAP_GE512  // one look-up that Highway does not have gives the numbers as floats; it ignores all but four bits
    const hn::Repartition<uint8_t, D> d8;
    const hn::Repartition<uint32_t, D> d32;
    alignas(64) static constexpr uint8_t kByte[64] = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5,
                                                      5, 5, 6, 6, 6, 6, 7, 7, 7, 7, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2,
                                                      3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 6, 6, 6, 6, 7, 7, 7, 7};
    alignas(64) static constexpr uint32_t kShift[16] = {0, 0, 0, 0, 0, 0, 0, 0, 4, 4, 4, 4, 4, 4, 4, 4};
    alignas(64) static constexpr float kNumbers[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    uint64_t bytes;
    std::memcpy(&bytes, q, sizeof bytes);
    const auto all = hn::BitCast(d8, hn::Set(hn::Repartition<uint64_t, D>(), bytes));
    const auto spread = hn::BitCast(d32, hn::TableLookupBytes(all, hn::Load(d8, kByte)));
    const auto index = hn::Shr(spread, hn::Load(d32, kShift));
    const Vec<D> numbers{_mm512_permutexvar_ps(index.raw, hn::Load(d, kNumbers).raw)};
    return hn::Mul(numbers, hn::Set(d, kNvfp4Scales.of[block[sub]]));
#else
    static_assert(kLanes <= 8);
    const hn::Full128<uint8_t> d8;
    const hn::Full128<int8_t> d_table;
    uint64_t bytes;
    std::memcpy(&bytes, q, sizeof bytes);
    bytes >>= k / 8 % 2 * 4;
    if constexpr (kLanes <= 4) bytes >>= k / 4 % 2 * 32;
    const hn::Full128<uint64_t> d64;
    const auto nibbles = hn::Set(d64, bytes);
    const auto index = hn::And(hn::BitCast(d8, nibbles), hn::Set(d8, 15));
    const auto values = hn::TableLookupBytes(hn::LoadU(d_table, kMxfp4Values), hn::BitCast(d_table, index));
    const hn::Rebind<int8_t, D> d_values;
    const hn::Rebind<int32_t, D> d32;
    const auto numbers = hn::PromoteTo(d32, lowest(d_values, values));
    return hn::Mul(hn::ConvertTo(d, numbers), hn::Set(d, kNvfp4Scales.of[block[sub]]));
#endif
  }
};

#endif
WEIR_WEIGHT_KERNELS(NVFP4)
}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {
WEIR_EXPORT_WEIGHT_KERNELS(NVFP4)
}  // namespace weir::cpu
#endif
