// Vector decoder of Q3_K (layout: quant/q3_k.h): the low two bits are widened to 16-bit lanes; 4 is
// subtracted where the third bit is clear.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/weight_q3_k.cpp"
#include "cpu/simd_targets.h"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "cpu/weight_kernels-inl.h"
#include "quant/q3_k.h"

WEIR_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {
#if WEIR_VECTOR_KERNELS

struct DecoderQ3_K {
  static constexpr Layout kLayout = Layout::kSuperBlocks;
  static constexpr size_t kBlockBytes = sizeof(BlockQ3_K);
  static constexpr size_t kMinima = 0;
  static constexpr TileKind kKind = TileKind::kGroupScale64;  // 4 * 32 * 32767 * 64 < 2^31
  using D16 = hn::CappedTag<int16_t, 32>;
  struct Header {
    float scale;
    HWY_ALIGN uint32_t sub[kHalves];  // sub-scales, as pairs of equal i16
  };

  static HWY_INLINE void header(const uint8_t* p, Header& h) {
    h.scale = load_f16(p + offsetof(BlockQ3_K, scale));
    uint64_t low;
    uint32_t high;
    std::memcpy(&low, p + offsetof(BlockQ3_K, sub_scales), sizeof low);
    std::memcpy(&high, p + offsetof(BlockQ3_K, sub_scales) + 8, sizeof high);
    // Four times four sub-scales in bytes: bits 0..3 from `low`, bits 4..5 from `high`.
    const auto top = [&](int shift) { return uint64_t{high >> shift & 0x03030303u} << 4; };
    const uint64_t bytes[2] = {(low & 0x0F0F0F0F0F0F0F0Fu) | top(0) | top(2) << 32,
                               (low >> 4 & 0x0F0F0F0F0F0F0F0Fu) | top(4) | top(6) << 32};
    uint8_t sub[kHalves];
    std::memcpy(sub, bytes, sizeof sub);
    // At most eight at once: reads that are wider than the writes above would have to wait.
    const hn::CappedTag<int32_t, 8> d32;
    const hn::Rebind<uint8_t, decltype(d32)> d8;
    for (size_t i = 0; i < kHalves; i += hn::MaxLanes(d32))
      store_pairs(hn::Sub(hn::PromoteTo(d32, hn::LoadU(d8, sub + i)), hn::Set(d32, 32)), h.sub + i);
  }

  template <size_t kUnit, class F>
  static HWY_INLINE void unit(const uint8_t* p, const Header& h, F&& f) {
    quarter<2 * kUnit>(p, h, f);
    quarter<2 * kUnit + 1>(p, h, f);
  }
  // Weights 32 * kQuarter and the next 31.
  template <size_t kQuarter, class F>
  static HWY_INLINE void quarter(const uint8_t* p, const Header& h, F&& f) {
    const D16 d16;
    const hn::Rebind<uint8_t, D16> d8;
    const uint8_t* low = p + offsetof(BlockQ3_K, low) + kQuarter / 4 * 32;
    HWY_UNROLL(4)
    for (size_t k = 0; k < 32; k += hn::MaxLanes(d16)) {
      const auto bytes = hn::PromoteTo(d16, hn::LoadU(d8, low + k));
      const auto high = hn::PromoteTo(d16, hn::LoadU(d8, p + offsetof(BlockQ3_K, high) + k));
      const auto bits = hn::And(hn::ShiftRight<kQuarter % 4 * 2>(bytes), hn::Set(d16, 3));
      const auto is_set = hn::TestBit(high, hn::Set(d16, 1 << kQuarter));
      const auto numbers = hn::IfThenElse(is_set, bits, hn::Sub(bits, hn::Set(d16, 4)));
      f(hn::Mul(numbers, broadcast_halves(d16, h.sub + 2 * kQuarter, k)), 32 * kQuarter + k);
    }
  }
};

#endif
WEIR_WEIGHT_KERNELS(Q3_K)
}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {
WEIR_EXPORT_WEIGHT_KERNELS(Q3_K)
}  // namespace weir::cpu
#endif
