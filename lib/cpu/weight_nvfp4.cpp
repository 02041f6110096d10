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
  static constexpr size_t kGroupBytes = kGroup / BlockNVFP4::kWeights * sizeof(BlockNVFP4);

  // The lowest lanes of a vector of 16.
  template <class D>
  static HWY_INLINE Vec<D> lowest(D d, Vec<hn::Full128<int8_t>> v) {
    if constexpr (hn::MaxLanes(d) == 16) return v;
    if constexpr (hn::MaxLanes(d) == 8) return hn::LowerHalf(d, v);
    if constexpr (hn::MaxLanes(d) == 4) return hn::LowerHalf(d, hn::LowerHalf(hn::Twice<D>(), v));
  }
  template <class D>
  static HWY_INLINE Vec<D> load(D d, const uint8_t* p, size_t k) {
    constexpr size_t kLanes = hn::MaxLanes(d);
    static_assert(kLanes <= 16);
    const uint8_t* block = p + k / BlockNVFP4::kWeights * sizeof(BlockNVFP4);
    const size_t sub = k / 16 % 4;
    const uint8_t* q = block + offsetof(BlockNVFP4, q) + 8 * sub;
    const hn::Full128<uint8_t> d8;
    const hn::Full128<int8_t> d_table;
    uint64_t bytes;
    std::memcpy(&bytes, q, sizeof bytes);
    if constexpr (kLanes <= 8) bytes >>= k / 8 % 2 * 4;
    if constexpr (kLanes <= 4) bytes >>= k / 4 % 2 * 32;
    const hn::Full128<uint64_t> d64;
    auto nibbles = hn::Set(d64, bytes);
    if constexpr (kLanes == 16) nibbles = hn::InterleaveLower(d64, nibbles, hn::ShiftRight<4>(nibbles));
    const auto index = hn::And(hn::BitCast(d8, nibbles), hn::Set(d8, 15));
    const auto values = hn::TableLookupBytes(hn::LoadU(d_table, kMxfp4Values), hn::BitCast(d_table, index));
    const hn::Rebind<int8_t, D> d_values;
    const hn::Rebind<int32_t, D> d32;
    const auto numbers = hn::PromoteTo(d32, lowest(d_values, values));
    return hn::Mul(hn::ConvertTo(d, numbers), hn::Set(d, kNvfp4Scales.of[block[sub]]));
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
