// Rows of the weight types with grids (quant/grid.h) on the CPU. Entries of a grid are looked up by plain loads and
// stores, so each weight_<type>.cpp has a plain function that unpacks a block; the vector code, which takes it from
// there, is the same for all of these types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "cpu/matmul_kernels.h"
#include "cpu/plain_kernels.h"

namespace weir::cpu {

// 256 unpacked weights: scale * sub[i / 16] * magnitude[i], negative where bit i % 8 of signs[i / 8] is set.
struct GridBlock {
  alignas(64) uint8_t magnitude[kGroup];
  alignas(64) uint32_t sub[kHalves];  // as pairs of equal i16
  uint8_t signs[kGroup / 8 + 8];      // vector code may read eight bytes at once
  float scale;
};
struct GridType {
  void (*unpack)(const uint8_t* block, GridBlock& out);  // all but the scale, which is `part` of the f16 in front
  size_t block_bytes;
  float part;
};

struct GridKernels {
  void (*gemv)(const GemvCall&, const GridType&);
  void (*decode)(const DecodeCall&, const GridType&, Tile&);
  void (*decode_float)(const DecodeCall&, const GridType&, Tile&);
};
const GridKernels* grid_kernels();  // null where there are no vectors

// The kernels of a type. An i32 must be able to sum as many products of 32767 and the largest sub * magnitude as kKind
// says, and 32.
template <WeightType kType, const GridType& kGrid, TileKind kKind>
const WeightKernels& grid_weight_kernels() {
  static constexpr WeightKernels kKernels = {
      kKind,
      false,
      false,
      [](const GemvCall& c) { grid_kernels()->gemv(c, kGrid); },
      [](const DecodeCall& c, Tile& tile) { grid_kernels()->decode(c, kGrid, tile); },
      [](const DecodeCall& c, Tile& tile) { grid_kernels()->decode_float(c, kGrid, tile); }};
  return grid_kernels() != nullptr ? kKernels : kPlainWeightKernels<kType>;
}

// 1 + 2n as such a pair, for a sub-scale n.
constexpr uint32_t odd_pair(uint32_t n) { return (1 + 2 * n) * 0x00010001u; }

// The entries of a grid as bytes, in the order of the weights: Word has four or eight.
template <class Word, size_t kN>
struct GridBytes {
  Word entry[kN];
};
template <size_t kN, size_t kValues>
constexpr GridBytes<uint32_t, kN> grid3_bytes(const uint16_t (&grid)[kN], const uint8_t (&values)[kValues]) {
  GridBytes<uint32_t, kN> out = {};
  for (size_t e = 0; e < kN; ++e) {
    for (size_t k = 0; k < 4; ++k) out.entry[e] |= static_cast<uint32_t>(grid3_weight(values, grid[e], k)) << (8 * k);
  }
  return out;
}
template <size_t kN>
constexpr GridBytes<uint64_t, kN> grid2_bytes(const uint16_t (&grid)[kN]) {
  GridBytes<uint64_t, kN> out = {};
  for (size_t e = 0; e < kN; ++e) {
    for (size_t k = 0; k < 8; ++k) out.entry[e] |= static_cast<uint64_t>(grid2_weight(grid[e], k)) << (8 * k);
  }
  return out;
}

}  // namespace weir::cpu
