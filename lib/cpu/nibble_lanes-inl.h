// The lanes of blocks of 16 bytes whose nibbles are 32 weights, for the decoders of weight_<type>.cpp: plain numbers,
// numbers with a fifth bit, indices of a table. Included once per instruction set, after foreach_target.h.
#if defined(WEIR_CPU_NIBBLE_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEIR_CPU_NIBBLE_LANES_INL_H_
#undef WEIR_CPU_NIBBLE_LANES_INL_H_
#else
#define WEIR_CPU_NIBBLE_LANES_INL_H_
#endif

#include "cpu/matmul_simd-inl.h"

WEIR_BEFORE_NAMESPACE();
#if WEIR_VECTOR_KERNELS
namespace weir::cpu::HWY_NAMESPACE {

// The lanes of blocks of 16 bytes whose low and high nibbles are weights 0..15 and 16..31; their decoders derive from
// this. 512-bit vectors hold two blocks side by side, so that no lane is idle and no shuffle is needed.
struct NibbleLanes {
#if HWY_CAP_GE512
  using D16 = hn::CappedTag<int16_t, 32>;
  using Half = hn::Half<D16>;
  static constexpr size_t kAtOnce = 2;

  static HWY_INLINE Vec<D16> numbers(const int16_t* q, size_t key) {
    return hn::Combine(D16(), hn::Load(Half(), q + 32 + key), hn::Load(Half(), q + key));
  }
  static HWY_INLINE void store(Vec<D16> v, int16_t* q, size_t key) {
    hn::Store(hn::LowerHalf(Half(), v), Half(), q + key);
    hn::Store(hn::UpperHalf(Half(), v), Half(), q + 32 + key);
  }
  static HWY_INLINE Vec<D16> load_bytes(const uint8_t* p, const uint8_t* next) {
    const hn::Rebind<uint8_t, D16> d8;
    return hn::PromoteTo(
        D16(), hn::Combine(d8, hn::LoadU(hn::Half<decltype(d8)>(), next), hn::LoadU(hn::Half<decltype(d8)>(), p)));
  }
  // 16 in the lanes whose bit is set, of the 16 bits at p and at next.
  static HWY_INLINE Vec<D16> fifth_bits(const uint8_t* p, const uint8_t* next) {
    uint16_t first, second;
    std::memcpy(&first, p, sizeof first);
    std::memcpy(&second, next, sizeof second);
    const uint64_t both = first | uint64_t{second} << 16;  // in a register: a wide read after narrow writes has to wait
    uint8_t bits[8];                                       // LoadMaskBits may read eight bytes
    std::memcpy(bits, &both, sizeof bits);
    return hn::IfThenElseZero(hn::LoadMaskBits(D16(), bits), hn::Set(D16(), 16));
  }
#else
  using D16 = hn::CappedTag<int16_t, 16>;
  using Half = D16;
  static constexpr size_t kAtOnce = 1;

  static HWY_INLINE Vec<D16> numbers(const int16_t* q, size_t key) { return hn::Load(D16(), q + key); }
  static HWY_INLINE void store(Vec<D16> v, int16_t* q, size_t key) { hn::Store(v, D16(), q + key); }
  static HWY_INLINE Vec<D16> load_bytes(const uint8_t* p, const uint8_t*) {
    return hn::PromoteTo(D16(), hn::LoadU(hn::Rebind<uint8_t, D16>(), p));
  }
  static HWY_INLINE Vec<D16> fifth_bits(const uint8_t* p, const uint8_t*) {
    return hn::IfThenElseZero(hn::LoadMaskBits(D16(), p), hn::Set(D16(), 16));
  }
#endif
  // Calls f(numbers of five bits, key) for the weights of the blocks at p and next, which have their nibbles from byte
  // kNibbles and the fifth bits, in the order of the weights, from byte kHigh on.
  template <size_t kHigh, size_t kNibbles, class F>
  static HWY_INLINE void five_bits(const uint8_t* p, const uint8_t* next, F&& f) {
    HWY_UNROLL(2)
    for (size_t k = 0; k < 16; k += hn::MaxLanes(Half())) {
      static_assert(hn::MaxLanes(Half()) >= 8, "a lane's bits begin at a byte");
      const size_t bits = kHigh + k / 8;
      const auto nibbles = load_bytes(p + kNibbles + k, next + kNibbles + k);
      f(hn::Or(hn::And(nibbles, hn::Set(D16(), 15)), fifth_bits(p + bits, next + bits)), k);
      f(hn::Or(hn::ShiftRight<4>(nibbles), fifth_bits(p + bits + 2, next + bits + 2)), k + 16);
    }
  }
};

// A table of 16 signed bytes, indexed by numbers of 4 bits.
struct Codebook {
  alignas(64) int16_t words[32];  // twice
  alignas(16) int8_t bytes[16];
};
constexpr Codebook make_codebook(const int8_t (&values)[16]) {
  Codebook c = {};
  for (size_t i = 0; i < 16; ++i) c.words[i] = c.words[i + 16] = c.bytes[i] = values[i];
  return c;
}

// What the low and the high nibbles of the bytes that load_bytes(p, next) gives select.
struct CodebookLanes : NibbleLanes {
  static HWY_INLINE void look_up(const Codebook& c, const uint8_t* p, const uint8_t* next, Vec<D16>& low,
                                 Vec<D16>& high) {
    const D16 d16;
#if HWY_CAP_GE512
    // One instruction that Highway does not have. It reads five bits of an index; the table is there twice, so bit 4,
    // which belongs to the high nibble, does not matter.
    const auto table = hn::Load(d16, c.words);
    const auto nibbles = load_bytes(p, next);
    low = Vec<D16>{_mm512_permutexvar_epi16(nibbles.raw, table.raw)};
    high = Vec<D16>{_mm512_permutexvar_epi16(hn::ShiftRight<4>(nibbles).raw, table.raw)};
#else
    const hn::Full128<int8_t> d_table;
    const hn::Rebind<uint8_t, D16> d8;
    const hn::Rebind<int8_t, D16> d_signed;
    const auto table = hn::Load(d_table, c.bytes);
    const auto nibbles = hn::LoadU(d8, p);
    const auto first = hn::BitCast(d_signed, hn::And(nibbles, hn::Set(d8, 15)));
    const auto second = hn::BitCast(d_signed, hn::ShiftRight<4>(nibbles));
    low = hn::PromoteTo(d16, hn::TableLookupBytes(table, first));
    high = hn::PromoteTo(d16, hn::TableLookupBytes(table, second));
    (void)next;
#endif
  }
  // Calls f(numbers of the table, key) for the weights of the blocks at p and next, which have their nibbles from byte
  // kNibbles on.
  template <size_t kNibbles, class F>
  static HWY_INLINE void look_up_blocks(const Codebook& c, const uint8_t* p, const uint8_t* next, F&& f) {
    HWY_UNROLL(2)
    for (size_t k = 0; k < 16; k += hn::MaxLanes(Half())) {
      Vec<D16> low, high;
      look_up(c, p + kNibbles + k, next + kNibbles + k, low, high);
      f(low, k);
      f(high, k + 16);
    }
  }
};

}  // namespace weir::cpu::HWY_NAMESPACE
#endif
HWY_AFTER_NAMESPACE();

#endif  // per target
