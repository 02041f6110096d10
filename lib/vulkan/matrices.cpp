#include "vulkan/matrices.h"

#include "shaders/shared.h"

namespace weir::vulkan {

uint32_t subgroups_down(const MatrixTile& tile, const Matrices& m) {
  const uint32_t n = tile.invocations / m.lanes;
  uint32_t down = 1;
  while (down * down * 4 <= n) down *= 2;
  return down;
}

uint32_t subgroups_across(const MatrixTile& tile, const Matrices& m) {
  return tile.invocations / m.lanes / subgroups_down(tile, m);
}

// As shaders/gemm_coop.comp has it.
uint32_t shared_bytes_of(const MatrixTile& tile, const Matrices& m) {
  return (tile.tokens + tile.rows) * (tile.step / 8 + 1) * 16 + tile.invocations / m.lanes * m.m * m.n * 4;
}

bool can_tile(const Matrices& m, const MatrixTile& tile, uint32_t shared_bytes) {
  return tile.invocations % m.lanes == 0 && tile.tokens % (m.m * subgroups_down(tile, m)) == 0 &&
         tile.rows % (m.n * subgroups_across(tile, m)) == 0 && tile.step % m.k == 0 && m.k % 8 == 0 &&
         shared_bytes_of(tile, m) <= shared_bytes;
}

bool fit_tiles(const Matrices& m, uint32_t shared_bytes, MatrixTiles& tiles) {
  tiles = kMatrixTiles;
  for (size_t i = 1; i < tiles.size(); ++i)
    if (!can_tile(m, tiles[i], shared_bytes)) tiles[i] = tiles[i - 1];
  return can_tile(m, tiles[0], shared_bytes);
}

}  // namespace weir::vulkan
