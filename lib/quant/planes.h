// How a weight matrix lies in the memory of a device. Files interleave scales and quants in blocks of 17 to 210 bytes,
// which 16-byte loads cannot read. The host separates them into planes, each aligned; their total size is that of the
// file. <type>.h says which planes a type has; there B is the number of 32-weight blocks of the matrix, in row order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/status.h"
#include "quant/weight_type.h"

namespace weir {

// kBytes: bytes of 256 weights in each plane, in order, at most kMaxPlanes. Block formats also have
//   static void place(const Block<type>& block, size_t b, size_t n, uint8_t* out)
// which writes one block of the file to its position in the planes of the whole matrix at `out`. b is the index of the
// block's first 32 weights in the matrix, n the number of 32-weight blocks of the matrix.
template <WeightType T>
struct PlaneLayout;

// Packs the nibbles of the eight sub-blocks of a K-quant. In the file one sub-block has the low nibbles of 32 bytes and
// the next one their high nibbles.
inline void place_nibbles(const uint8_t* q, size_t b, uint8_t* out) {
  for (size_t s = 0; s < 8; ++s) {
    const uint8_t* from = q + s / 2 * 32;
    const uint32_t shift = s % 2 * 4;
    uint8_t* to = out + 16 * (b + s);
    for (size_t i = 0; i < 16; ++i)
      to[i] = static_cast<uint8_t>((from[i] >> shift & 15) | (from[i + 16] >> shift & 15) << 4);
  }
}

// Checks that the matrix has planes: its columns are a multiple of 32.
Status check_planes(const Weight& weight);

// Writes rows [first_row, end_row) of `host` to their positions in `out`, which holds the planes of the whole matrix.
void repack(const Weight& host, uint32_t first_row, uint32_t end_row, uint8_t* out);

// Bytes of 256 weights in each plane, in order; returns the number of planes.
uint32_t planes_of(WeightType type, uint32_t bytes[kMaxPlanes]);

}  // namespace weir
