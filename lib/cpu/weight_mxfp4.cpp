// Vector decoder of MXFP4 (layout: quant/mxfp4.h): nibbles as in Q4_0 index a table in a register. The scales
// are exponents.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/weight_mxfp4.cpp"
#include "cpu/simd_targets.h"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "cpu/nibble_lanes-inl.h"
#include "cpu/weight_kernels-inl.h"
#include "quant/mxfp4.h"

WEIR_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {
#if WEIR_VECTOR_KERNELS

struct DecoderMXFP4 : CodebookLanes {
  static constexpr Layout kLayout = Layout::kBlocks;
  static constexpr size_t kBlockBytes = sizeof(BlockMXFP4);
  static constexpr int8_t kOffset = 0;
  static constexpr size_t kMinima = 0;
  static constexpr Codebook kValues = make_codebook(kMxfp4Values);

  static HWY_INLINE void scales(const uint8_t* p, size_t n_blocks, float* HWY_RESTRICT out) {
    if (HWY_UNLIKELY(n_blocks != kSubs)) {
      for (size_t b = 0; b < kSubs; ++b) out[b] = b < n_blocks ? mxfp4_scale(p[b * kBlockBytes]) : 0.0f;
      return;
    }
    // Gathered in a register, as load_f16_of_blocks does.
    uint64_t bytes = 0;
    HWY_UNROLL(8)
    for (size_t b = 0; b < kSubs; ++b) bytes |= uint64_t{p[b * kBlockBytes]} << (8 * b);
    const hn::CappedTag<float, kSubs> df;
    const hn::Rebind<uint32_t, decltype(df)> du;
    const hn::Rebind<uint8_t, decltype(df)> d8;
    alignas(8) uint8_t in[kSubs];
    std::memcpy(in, &bytes, sizeof in);
    for (size_t b = 0; b < kSubs; b += hn::MaxLanes(df)) {
      const auto e = hn::PromoteTo(du, hn::LoadU(d8, in + b));
      const auto power = hn::Mul(hn::BitCast(df, hn::ShiftLeft<23>(e)), hn::Set(df, 0.5f));
      const auto finite = hn::IfThenElse(hn::RebindMask(df, hn::Eq(e, hn::Zero(du))), hn::Set(df, 0x1p-128f), power);
      const auto nan = hn::BitCast(df, hn::Set(du, 0x7FC00000u));
      hn::Store(hn::IfThenElse(hn::RebindMask(df, hn::Eq(e, hn::Set(du, 255))), nan, finite), df, out + b);
    }
  }

  template <bool, class F>
  static HWY_INLINE void blocks(const uint8_t* p, const uint8_t* next, F&& f) {
    look_up_blocks<offsetof(BlockMXFP4, q)>(kValues, p, next, f);
  }
};

#endif
WEIR_WEIGHT_KERNELS(MXFP4)
}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {
WEIR_EXPORT_WEIGHT_KERNELS(MXFP4)
}  // namespace weir::cpu
#endif
