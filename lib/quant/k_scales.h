// The 12 bytes that Q4_K and Q5_K share: a 6-bit scale and a 6-bit minimum for each of the eight sub-blocks of 32
// weights.
//   byte  0..3   low six bits: scale 0..3;    top two bits: bits 4..5 of scale 4..7
//   byte  4..7   low six bits: minimum 0..3;  top two bits: bits 4..5 of minimum 4..7
//   byte  8..11  low four bits: bits 0..3 of scale 4..7;  high four bits: bits 0..3 of minimum 4..7
#pragma once

#include <cstddef>
#include <cstdint>

namespace weir {

struct KScale {
  uint8_t scale, minimum;  // 0..63
};

constexpr KScale k_scale(const uint8_t* packed, size_t sub_block) {
  if (sub_block < 4) {
    return {static_cast<uint8_t>(packed[sub_block] & 63), static_cast<uint8_t>(packed[sub_block + 4] & 63)};
  }
  const size_t i = sub_block - 4;
  return {static_cast<uint8_t>((packed[i + 8] & 15) | (packed[i] >> 6) << 4),
          static_cast<uint8_t>(packed[i + 8] >> 4 | (packed[i + 4] >> 6) << 4)};
}

}  // namespace weir
