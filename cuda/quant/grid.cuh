// What the types with grids have in common on the GPU (lib/quant/grid.h). A lane looks up entries of its own, each at
// another place. A GEMV has the table in shared memory, in so many copies that few lanes meet in a bank, and in the
// form that the arithmetic wants: what four weights then take beyond the load are a byte permutation and few other
// instructions. Where a lane decodes few units the table is read from memory, through L1.
//
// Entries of eight: nibble k selects the magnitude of weight k, 8, 25 or 43, and its bit 2 the negative. Entries of
// four: byte k is that of weight k.
#pragma once

#include "cuda/common/permute.cuh"
#include "cuda/quant/block_dot.cuh"
#include "quant/grid.h"

namespace weir::cuda {

// A format's table in memory, and in shared memory.
template <class F>
struct EntriesInMemory {
  __device__ uint32_t operator()(uint32_t number) const { return F::entry(number); }
};
template <class F>
requires requires { F::kEntries; }
struct Entries<F> {
  // 32 copies of 256 entries: no two lanes meet. 16 of 512, 8 of 1,024: a load takes two or three turns. Fewer copies
  // where the inputs leave less room: that costs less than another launch, which would read the weights again.
  static constexpr uint32_t kMinBytes = F::kEntries * sizeof(uint32_t), kMaxBytes = 32 * 1024;
  static uint32_t bytes(size_t room) {
    uint32_t bytes = kMaxBytes;
    while (bytes > room && bytes > kMinBytes) bytes /= 2;
    return bytes;
  }
  const uint32_t* lane;  // the first entry of its copy
  uint32_t copies;

  __device__ Entries(std::byte* table, uint32_t n_bytes, uint32_t n_threads)
      : lane(reinterpret_cast<const uint32_t*>(table)), copies(n_bytes / (F::kEntries * sizeof(uint32_t))) {
    lane += threadIdx.x % copies;
    for (uint32_t i = threadIdx.x; i < n_bytes / sizeof(uint4); i += n_threads) {
      const uint32_t at = 4 * i;
      uint4 four = {};
      four.x = four.y = four.z = four.w = F::entry(at / copies);
      if (copies == 2) four.z = four.w = F::entry(at / 2 + 1);
      if (copies == 1) four.y = F::entry(at + 1), four.z = F::entry(at + 2), four.w = F::entry(at + 3);
      reinterpret_cast<uint4*>(table)[i] = four;
    }
  }
  __device__ uint32_t operator()(uint32_t number) const { return lane[number * copies]; }
  __device__ typename F::Words unpack(const typename F::Regs& r, uint32_t s) const { return F::unpack(r, s, *this); }
};

// Spreads the pairs of bits of an entry of eight over the nibbles of a word.
__device__ inline uint32_t spread_pairs_over_nibbles(uint32_t entry) {
  uint32_t nibbles = (entry | entry << 8) & 0x00FF00FFu;
  nibbles = (nibbles | nibbles << 4) & 0x0F0F0F0Fu;
  return (nibbles | nibbles << 2) & 0x33333333u;
}
// Spreads the nibbles of an entry of four over the bytes of a word.
__device__ inline uint32_t spread_nibbles_over_bytes(uint32_t entry) {
  const uint32_t bytes = (entry | entry << 8) & 0x00FF00FFu;
  return (bytes | bytes << 4) & 0x0F0F0F0Fu;
}

// Signs as the planes have them, with the eighth signs in the place of the last nibble: each makes the count of minus
// signs of its eight weights even.
__device__ inline uint32_t with_eighth_signs(uint32_t word) {
  const uint32_t sevens = word & 0x0FFFFFFFu;
  uint32_t odd = sevens ^ sevens >> 16;
  odd ^= odd >> 8;
  odd ^= odd >> 4;
  return sevens | odd << 28;
}

// Eight weights from entry `i` of four, with their signs.
__device__ inline uint2 grid2_weights(uint32_t entry, uint32_t signs, uint32_t i) {
  constexpr uint32_t kPlus = kGrid2Values[0] | kGrid2Values[1] << 8 | kGrid2Values[2] << 16;
  constexpr uint32_t kMinus = (256u - kGrid2Values[0]) | (256u - kGrid2Values[1]) << 8 | (256u - kGrid2Values[2]) << 16;
  const uint32_t selectors = entry | ((i < 2 ? signs << (2 - i) : signs >> (i - 2)) & 0x44444444u);
  return {permute(kPlus, kMinus, selectors), permute(kPlus, kMinus, selectors >> 16)};
}
// 32 weights; number(i) is that of entry `i`.
template <class Table, class Number>
__device__ Bytes32 grid2_block(const Table& table, uint32_t signs, const Number& number) {
  const uint2 a = grid2_weights(table(number(0)), signs, 0), b = grid2_weights(table(number(1)), signs, 1);
  const uint2 c = grid2_weights(table(number(2)), signs, 2), d = grid2_weights(table(number(3)), signs, 3);
  return {{a.x, a.y, b.x, b.y}, {c.x, c.y, d.x, d.y}};
}

// Bytes 0xFF where the weights of entry `i` of eight are negative. The permutation spreads the highest bit of each byte
// over it.
__device__ inline uint32_t grid3_minus(uint32_t signs, uint32_t i) {
  return permute(signs << (7 - i / 2 - i % 2 * 4), 0, 0xBA98u);
}
// 32 weights from eight entries; weight(entry, minus) makes four.
template <class Table, class Number, class Weight>
__device__ Bytes32 grid3_block(const Table& table, uint32_t signs, const Number& number, const Weight& weight) {
  const auto four = [&](uint32_t i) { return weight(table(number(i)), grid3_minus(signs, i)); };
  return {{four(0), four(1), four(2), four(3)}, {four(4), four(5), four(6), four(7)}};
}

__device__ inline uint32_t byte_of(uint32_t word, uint32_t i) { return word >> (8 * i) & 255u; }

// A block whose sub-scales hold for 32 weights: 1 + 2n, or for 16, ready to be multiplied. Magnitudes are below 64 and
// sub-scales below 32, so the integers are below 2^31.
struct GridWords {
  Bytes32 w;
  int sub[2];
  float scale;
};
__device__ inline int odd_scale(uint32_t n) { return static_cast<int>(1 + 2 * n); }
__device__ inline float grid_dot(const GridWords& w, const Act& a, float total) {
  const int sum = w.sub[0] * dot16(w.w.low, a.hi[0], a.lo[0]) + w.sub[1] * dot16(w.w.high, a.hi[1], a.lo[1]);
  return fmaf(w.scale * a.scale, static_cast<float>(sum), total);
}
__device__ inline void grid_decode(const GridWords& w, float* out) {
  signed_to_float(w.w.low, w.scale * static_cast<float>(w.sub[0]), out);
  signed_to_float(w.w.high, w.scale * static_cast<float>(w.sub[1]), out + 16);
}

}  // namespace weir::cuda
