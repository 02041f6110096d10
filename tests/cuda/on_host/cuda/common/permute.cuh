// Replaces cuda/common/permute.cuh where device code is compiled for the host.
#pragma once

#include <cstdint>

namespace weir::cuda {

inline uint32_t permute(uint32_t x, uint32_t y, uint32_t selector) {
  const uint64_t both = x | uint64_t{y} << 32;
  uint32_t out = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t nibble = selector >> (4 * i) & 15, byte = both >> (nibble & 7) * 8 & 0xFF;
    const uint32_t sign = byte >= 0x80 ? 0xFF : 0;
    out |= (nibble >= 8 ? sign : byte) << (8 * i);
  }
  return out;
}

}  // namespace weir::cuda
