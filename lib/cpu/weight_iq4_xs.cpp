// Vector decoder of IQ4_XS (layout: quant/iq4_xs.h): nibbles as in Q4_0 index a table in a register.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/weight_iq4_xs.cpp"
#include "cpu/simd_targets.h"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "cpu/nibble_lanes-inl.h"
#include "cpu/weight_kernels-inl.h"
#include "quant/iq4_xs.h"

WEIR_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {
#if WEIR_VECTOR_KERNELS

struct DecoderIQ4_XS {
  using Lanes = CodebookLanes;
  using D16 = Lanes::D16;
  static constexpr Layout kLayout = Layout::kSuperBlocks;
  static constexpr size_t kBlockBytes = sizeof(BlockIQ4_XS);
  static constexpr size_t kMinima = 0;
  static constexpr TileKind kKind = TileKind::kGroupScale16;  // 127 * 32 * 32767 * 16 < 2^31
  static constexpr Codebook kValues = make_codebook(kIq4Values);
  struct Header {
    float scale;
    HWY_ALIGN uint32_t sub[kSubs];  // sub-scales, as pairs of equal i16
  };

  static HWY_INLINE void header(const uint8_t* p, Header& h) {
    h.scale = load_f16(p + offsetof(BlockIQ4_XS, scale));
    uint16_t high;
    uint32_t low;
    std::memcpy(&high, p + offsetof(BlockIQ4_XS, sub_high), sizeof high);
    std::memcpy(&low, p + offsetof(BlockIQ4_XS, sub_low), sizeof low);
    const hn::CappedTag<uint32_t, kSubs> du;
    const hn::RebindToSigned<decltype(du)> d32;
    for (size_t i = 0; i < kSubs; i += hn::MaxLanes(du)) {
      const auto index = hn::Iota(du, static_cast<uint32_t>(i));
      const auto four = hn::And(hn::Shr(hn::Set(du, low), hn::ShiftLeft<2>(index)), hn::Set(du, 15));
      const auto two = hn::And(hn::Shr(hn::Set(du, high), hn::Add(index, index)), hn::Set(du, 3));
      const auto sub = hn::BitCast(d32, hn::Or(four, hn::ShiftLeft<4>(two)));
      store_pairs(hn::Sub(sub, hn::Set(d32, 32)), h.sub + i);
    }
  }

  template <size_t kUnit, class F>
  static HWY_INLINE void unit(const uint8_t* p, const Header& h, F&& f) {
    const D16 d16;
    const uint8_t* q = p + offsetof(BlockIQ4_XS, q) + 32 * kUnit;
    const auto even = broadcast_pair(d16, h.sub[2 * kUnit]), odd = broadcast_pair(d16, h.sub[2 * kUnit + 1]);
    Vec<D16> low, high;
#if HWY_CAP_GE512  // two sub-blocks side by side
    Lanes::look_up(kValues, q, q + 16, low, high);
    f(hn::Mul(hn::ConcatLowerLower(d16, high, low), even), 64 * kUnit);
    f(hn::Mul(hn::ConcatUpperUpper(d16, high, low), odd), 64 * kUnit + 32);
#else
    HWY_UNROLL(2)
    for (size_t k = 0; k < 16; k += hn::MaxLanes(d16)) {
      Lanes::look_up(kValues, q + k, nullptr, low, high);
      f(hn::Mul(low, even), 64 * kUnit + k);
      f(hn::Mul(high, even), 64 * kUnit + 16 + k);
    }
    HWY_UNROLL(2)
    for (size_t k = 0; k < 16; k += hn::MaxLanes(d16)) {
      Lanes::look_up(kValues, q + 16 + k, nullptr, low, high);
      f(hn::Mul(low, odd), 64 * kUnit + 32 + k);
      f(hn::Mul(high, odd), 64 * kUnit + 48 + k);
    }
#endif
  }
};

#endif
WEIR_WEIGHT_KERNELS(IQ4_XS)
}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {
WEIR_EXPORT_WEIGHT_KERNELS(IQ4_XS)
}  // namespace weir::cpu
#endif
