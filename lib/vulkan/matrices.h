// Cooperative matrices: products of small matrices, of which a subgroup's lanes have parts.
#pragma once

#include <array>
#include <cstdint>

namespace weir::vulkan {

// Tokens, rows and columns of a matrix, f16 times f16 with f32 sums, and lanes of the subgroups that have it. No lanes:
// the device has none, or none that are used.
struct Matrices {
  uint32_t m = 0, n = 0, k = 0;
  uint32_t lanes = 0;
  bool are_there() const { return lanes != 0; }
};

// What the device's text says where they are used.
inline constexpr char kMatricesText[] = ", cooperative matrices";

// A workgroup's share of a product: tokens, rows, columns that pass through shared memory at a time, 32 or 64, and its
// invocations.
struct MatrixTile {
  uint32_t tokens, rows, step, invocations;
};

// From the smallest to the largest.
using MatrixTiles = std::array<MatrixTile, 3>;
inline constexpr MatrixTiles kMatrixTiles = {{{32, 64, 64, 256}, {64, 128, 64, 256}, {128, 128, 64, 256}}};

// How the subgroups of a workgroup divide a tile: so many along tokens, the others along rows.
uint32_t subgroups_down(const MatrixTile& tile, const Matrices& m);
uint32_t subgroups_across(const MatrixTile& tile, const Matrices& m);
// Bytes of shared memory of a workgroup.
uint32_t shared_bytes_of(const MatrixTile& tile, const Matrices& m);
// Whether a tile can be divided into these matrices, and what it takes of shared memory is there.
bool can_tile(const Matrices& m, const MatrixTile& tile, uint32_t shared_bytes);
// kMatrixTiles, where one that cannot be is the one before; false: the first cannot be.
bool fit_tiles(const Matrices& m, uint32_t shared_bytes, MatrixTiles& tiles);

}  // namespace weir::vulkan
