// Rows of the weight types with grids (quant/grid.h). A decoder unpacks a block; the rest is the same for all of these
// types (grid_rows.cpp), so a type adds little to the library. Entries are looked up by plain loads and stores, which
// cost less than gathers, and with AVX3_DL by permutations of tables in registers, which need a third of the steps.
// Included once per instruction set, after foreach_target.h.
//
// A decoder has
//   kKind, kBlockBytes, kPart: the step is kPart times the f16 in front of a block; kHalfScales: see GridType;
//   unpack(p, b): fills all of `b` but the scale.
// An i32 must be able to sum 32 products of 32767 and the largest magnitude times its sub, and as many as kKind says.
#include <type_traits>

#include "cpu/matmul_kernels.h"
#include "cpu/matmul_simd-inl.h"
#include "cpu/plain_kernels.h"
#include "quant/grid.h"

// Once, for all instruction sets.
#ifndef WEIR_CPU_GRID_ROWS_H_
#define WEIR_CPU_GRID_ROWS_H_
namespace weir::cpu {

// 256 unpacked weights: scale * sub[i / 16] * weight[i]; of types without half scales, sub[i / 32].
struct GridBlock {
  alignas(64) int8_t weight[kGroup];
  alignas(64) uint32_t sub[kHalves];  // as pairs of equal i16
  float scale;
  // For unpacking only: numbers of entries; bit i % 8 of signs[i / 8] is set where weight[i] is negative.
  alignas(64) uint16_t index[kGroup / 4];
  alignas(64) uint8_t signs[kGroup / 8];
};
struct GridType {
  void (*unpack)(const uint8_t* block, GridBlock& out);
  size_t block_bytes;
  float part;
  bool halves;  // whether every 16 weights have a sub-scale of their own, or every 32
};

// The entries of a grid as bytes, in the order of the weights.
template <class Word, size_t kN>
struct GridTable {
  Word entry[kN];
};
template <size_t kN, size_t kValues>
constexpr GridTable<uint32_t, kN> grid3_table(const uint16_t (&grid)[kN], const uint8_t (&values)[kValues]) {
  GridTable<uint32_t, kN> out = {};
  for (size_t e = 0; e < kN; ++e) {
    for (size_t k = 0; k < 4; ++k) out.entry[e] |= static_cast<uint32_t>(grid3_weight(values, grid[e], k)) << (8 * k);
  }
  return out;
}
// Weights 0..1 and 2..3 of all entries, a nibble each.
template <size_t kN>
struct GridHalves {
  alignas(64) uint8_t low[kN], high[kN];
};
template <size_t kN>
constexpr GridHalves<kN> grid3_halves(const uint16_t (&grid)[kN]) {
  GridHalves<kN> out = {};
  for (size_t e = 0; e < kN; ++e)
    out.low[e] = static_cast<uint8_t>(grid[e]), out.high[e] = static_cast<uint8_t>(grid[e] >> 8);
  return out;
}
template <size_t kN>
constexpr GridTable<uint64_t, kN> grid2_table(const uint16_t (&grid)[kN]) {
  GridTable<uint64_t, kN> out = {};
  for (size_t e = 0; e < kN; ++e) {
    for (size_t k = 0; k < 8; ++k) out.entry[e] |= static_cast<uint64_t>(grid2_weight(grid[e], k)) << (8 * k);
  }
  return out;
}

}  // namespace weir::cpu
#endif

#if defined(WEIR_CPU_GRID_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEIR_CPU_GRID_ROWS_INL_H_
#undef WEIR_CPU_GRID_ROWS_INL_H_
#else
#define WEIR_CPU_GRID_ROWS_INL_H_
#endif

WEIR_BEFORE_NAMESPACE();
#if WEIR_VECTOR_KERNELS
namespace weir::cpu::HWY_NAMESPACE {

// In grid_rows.cpp.
void grid_gemv(const GemvCall& c, const GridType& type);
void grid_decode(const DecodeCall& c, const GridType& type, Tile& tile);
void grid_decode_float(const DecodeCall& c, const GridType& type, Tile& tile);

// The signs of even_signs (quant/grid.h), of words in lanes of 32 or 64 bits.
template <class V>
HWY_INLINE V even_signs(V word) {
  const hn::DFromV<V> d;
  const hn::Repartition<uint8_t, decltype(d)> d8;
  const auto low = hn::Or(hn::And(word, hn::Set(d, 0x7F)), hn::And(hn::ShiftLeft<1>(word), hn::Set(d, 0x7F00)));
  const auto high = hn::Or(hn::And(hn::ShiftLeft<2>(word), hn::Set(d, 0x7F0000)),
                           hn::And(hn::ShiftLeft<3>(word), hn::Set(d, 0x7F000000)));
  const auto seven = hn::Or(low, high);
  const auto odd = hn::ShiftLeft<7>(hn::PopulationCount(hn::BitCast(d8, seven)));
  return hn::Or(seven, hn::BitCast(d, odd));
}

HWY_INLINE uint64_t load_word(const uint8_t* p) {
  uint64_t word;
  std::memcpy(&word, p, sizeof word);
  return word;
}

// Sub-scales n in lanes of 32 bits, as pairs of 1 + 2n.
template <class V>
HWY_INLINE void store_odd(V n, uint32_t* out) {
  const hn::DFromV<V> d;
  const auto pair = hn::Or(hn::ShiftLeft<1>(n), hn::ShiftLeft<17>(n));
  hn::StoreU(hn::Add(pair, hn::Set(d, 0x00010001u)), d, out);
}
// The sub-scales in the nibbles of kN bytes.
template <size_t kN>
HWY_INLINE void store_nibbles(const uint8_t* p, GridBlock& b) {
  uint64_t bytes = 0;
  std::memcpy(&bytes, p, kN);
  const hn::Full128<uint64_t> d64;
  const hn::Full128<uint8_t> d8;
  const auto low = hn::BitCast(d8, hn::Set(d64, bytes)), high = hn::BitCast(d8, hn::Set(d64, bytes >> 4));
  alignas(16) uint8_t nibbles[16];
  hn::Store(hn::And(hn::InterleaveLower(d8, low, high), hn::Set(d8, 15)), d8, nibbles);
  const hn::CappedTag<uint32_t, 2 * kN> d;
  for (size_t i = 0; i < 2 * kN; i += hn::MaxLanes(d))
    store_odd(hn::PromoteTo(d, hn::Load(hn::Rebind<uint8_t, decltype(d)>(), nibbles + i)), b.sub + i);
}

// Bytes to the numbers of entries.
template <size_t kN>
HWY_INLINE void store_bytes(const uint8_t* p, uint16_t* index) {
  const hn::CappedTag<uint16_t, 32> d16;
  for (size_t i = 0; i < kN; i += hn::MaxLanes(d16))
    hn::Store(hn::PromoteTo(d16, hn::LoadU(hn::Rebind<uint8_t, decltype(d16)>(), p + i)), d16, index + i);
}

HWY_INLINE void apply_signs(GridBlock& b) {
  const hn::CappedTag<int8_t, 64> d;
  HWY_UNROLL(4)
  for (size_t k = 0; k < kGroup; k += hn::MaxLanes(d)) {
    const auto v = hn::Load(d, b.weight + k);
    hn::Store(hn::IfThenElse(hn::LoadMaskBits(d, b.signs + k / 8), hn::Neg(v), v), d, b.weight + k);
  }
}
// The weights of entries whose numbers are in b.index and signs in b.signs. Two entries of four at a time, for fewer
// stores.
template <size_t kN>
HWY_INLINE void look_up_fours(const GridTable<uint32_t, kN>& grid, GridBlock& b) {
  HWY_UNROLL(8)
  for (size_t e = 0; e < kGroup / 4; e += 2) {
    const uint64_t both = grid.entry[b.index[e]] | uint64_t{grid.entry[b.index[e + 1]]} << 32;
    std::memcpy(b.weight + 4 * e, &both, sizeof both);
  }
  apply_signs(b);
}
template <size_t kN>
HWY_INLINE void look_up_eights(const GridTable<uint64_t, kN>& grid, GridBlock& b) {
  HWY_UNROLL(8)
  for (size_t e = 0; e < kGroup / 8; ++e) std::memcpy(b.weight + 8 * e, &grid.entry[b.index[e]], 8);
  apply_signs(b);
}

#if HWY_TARGET == HWY_AVX3_DL
// Instructions that Highway does not have. Entry index[i], of which bits 0..6 are in the byte and the two above in
// masks, of a table of kN bytes.
template <size_t kN>
HWY_INLINE __m512i look_up_bytes(const uint8_t* table, __m512i index, __mmask64 eighth, __mmask64 ninth) {
  const auto of_128 = [&](size_t first) WEIR_ATTR {
    return _mm512_permutex2var_epi8(_mm512_load_si512(table + first), index, _mm512_load_si512(table + first + 64));
  };
  const __m512i low = _mm512_mask_blend_epi8(eighth, of_128(0), of_128(128));
  if constexpr (kN == 256) return low;
  return _mm512_mask_blend_epi8(ninth, low, _mm512_mask_blend_epi8(eighth, of_128(256), of_128(384)));
}
// Weights 64i .. 64i+63, from their magnitudes and b.signs.
HWY_INLINE void store_signed(__m512i magnitudes, int i, GridBlock& b) {
  const __mmask64 negative = load_word(b.signs + 8 * i);
  const __m512i v = _mm512_mask_sub_epi8(magnitudes, negative, _mm512_setzero_si512(), magnitudes);
  _mm512_store_si512(b.weight + 64 * i, v);
}
// The weights of 64 entries of four, whose signs are in b.signs: bits 0..7 of their numbers at q, bits 8 in a word.
template <size_t kN>
HWY_INLINE void look_up_fours(const GridHalves<kN>& grid, const uint8_t (&values)[8], const uint8_t* q, uint64_t ninths,
                              GridBlock& b) {
  // The interleaving below works within 128 bits: they get the entries that will lie side by side.
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const __m512i index = _mm512_permutexvar_epi32(order, _mm512_loadu_si512(q));
  const __mmask64 eighth = _mm512_movepi8_mask(index);
  const __mmask64 ninth =
      kN == 256 ? 0 : _mm512_movepi8_mask(_mm512_permutexvar_epi32(order, _mm512_movm_epi8(ninths)));
  const __m512i low = look_up_bytes<kN>(grid.low, index, eighth, ninth);
  const __m512i high = look_up_bytes<kN>(grid.high, index, eighth, ninth);
  // Numbers are below 8, so bits 3 and 7 are clear, and bits 4..6 are ignored.
  uint64_t word;
  std::memcpy(&word, values, sizeof word);
  const __m512i table = _mm512_set1_epi64(static_cast<int64_t>(word));
  const __m512i w0 = _mm512_shuffle_epi8(table, low), w1 = _mm512_shuffle_epi8(table, _mm512_srli_epi16(low, 4));
  const __m512i w2 = _mm512_shuffle_epi8(table, high), w3 = _mm512_shuffle_epi8(table, _mm512_srli_epi16(high, 4));
  const __m512i a = _mm512_unpacklo_epi8(w0, w1), c = _mm512_unpacklo_epi8(w2, w3);
  const __m512i d = _mm512_unpackhi_epi8(w0, w1), e = _mm512_unpackhi_epi8(w2, w3);
  store_signed(_mm512_unpacklo_epi16(a, c), 0, b);
  store_signed(_mm512_unpackhi_epi16(a, c), 1, b);
  store_signed(_mm512_unpacklo_epi16(d, e), 2, b);
  store_signed(_mm512_unpackhi_epi16(d, e), 3, b);
}
// Entry index[i] of a table of kN words.
template <size_t kN>
HWY_INLINE __m512i look_up_words(const uint16_t* table, __m512i index) {
  if constexpr (kN == 64) {
    return _mm512_permutex2var_epi16(_mm512_loadu_si512(table), index, _mm512_loadu_si512(table + 32));
  } else {
    const __mmask32 upper = _mm512_test_epi16_mask(index, _mm512_set1_epi16(kN / 2));
    return _mm512_mask_blend_epi16(upper, look_up_words<kN / 2>(table, index),
                                   look_up_words<kN / 2>(table + kN / 2, index));
  }
}
// The weights of the 32 entries of eight whose numbers are in b.index and signs in b.signs.
template <size_t kN>
HWY_INLINE void look_up_eights(const uint16_t (&grid)[kN], GridBlock& b) {
  const __m512i entries = look_up_words<kN>(grid, _mm512_load_si512(b.index));
  const __m512i values = _mm512_set1_epi32(kGrid2Values[0] | kGrid2Values[1] << 8 | kGrid2Values[2] << 16);
  const __m512i shifts = _mm512_set1_epi64(0x0E0C0A0806040200);
  const __m512i first = _mm512_set_epi64(0x0007000700070007, 0x0006000600060006, 0x0005000500050005, 0x0004000400040004,
                                         0x0003000300030003, 0x0002000200020002, 0x0001000100010001, 0);
  HWY_UNROLL(4)
  for (int i = 0; i < 4; ++i) {
    const __m512i which = _mm512_add_epi16(first, _mm512_set1_epi16(static_cast<int16_t>(8 * i)));
    const __m512i bits = _mm512_multishift_epi64_epi8(shifts, _mm512_permutexvar_epi16(which, entries));
    store_signed(_mm512_permutexvar_epi8(bits, values), i, b);
  }
}
#endif

template <class Dec>
inline constexpr GridType kGridOf = {Dec::unpack, Dec::kBlockBytes, Dec::kPart, Dec::kHalfScales};
template <class Dec>
void grid_gemv_of(const GemvCall& c) {
  grid_gemv(c, kGridOf<Dec>);
}
template <class Dec>
void grid_decode_of(const DecodeCall& c, Tile& tile) {
  grid_decode(c, kGridOf<Dec>, tile);
}
template <class Dec>
void grid_decode_float_of(const DecodeCall& c, Tile& tile) {
  grid_decode_float(c, kGridOf<Dec>, tile);
}
template <class Dec>
inline constexpr WeightKernels kGridKernels = {
    Dec::kKind, false, false, grid_gemv_of<Dec>, grid_decode_of<Dec>, grid_decode_float_of<Dec>};

}  // namespace weir::cpu::HWY_NAMESPACE
#endif
HWY_AFTER_NAMESPACE();

// As WEIR_WEIGHT_KERNELS of weight_kernels-inl.h.
#undef WEIR_GRID_KERNELS
#if WEIR_VECTOR_KERNELS
#define WEIR_GRID_KERNELS(Name) \
  const WeightKernels& kernels_##Name() { return kGridKernels<Decoder##Name>; }
#else
#define WEIR_GRID_KERNELS(Name) \
  const WeightKernels& kernels_##Name() { return kPlainWeightKernels<WeightType::k##Name>; }
#endif

#endif  // per target
