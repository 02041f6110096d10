// What the types with grids have in common (IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS, IQ3_S): the magnitudes of four or eight
// neighbouring weights are an entry of a table, their signs are bits of their own. The tables, <type>_grid.inc, hold
// numbers of two or three bits, which select a magnitude; a step is an odd multiple of a part of the block's scale.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weir {

// The magnitudes of the types of two bits, all the same.
inline constexpr uint8_t kGrid2Values[4] = {8, 25, 43, 0};

// Weight k of an entry of eight (two bits each) or of four (three bits in a nibble).
constexpr int grid2_weight(uint32_t entry, size_t k) { return kGrid2Values[entry >> (2 * k) & 3]; }
template <size_t kN>
constexpr int grid3_weight(const uint8_t (&values)[kN], uint32_t entry, size_t k) {
  return values[entry >> (4 * k) & 7];
}

// The sign bits of 32 weights from four numbers of seven bits each, from bit 0 on; the four bits above are ignored. The
// eighth sign of a number makes the count of minus signs even.
constexpr uint32_t even_signs(uint32_t word) {
  const uint32_t seven = (word & 0x7Fu) | (word << 1 & 0x7F00u) | (word << 2 & 0x7F0000u) | (word << 3 & 0x7F000000u);
  uint32_t odd = seven ^ seven >> 4;  // bit 0 of each byte gathers the parity; what comes in from above is dropped
  odd ^= odd >> 2;
  odd ^= odd >> 1;
  return seven | (odd & 0x01010101u) << 7;
}

// Value with the sign of bit i.
constexpr float with_sign(float value, uint32_t signs, size_t i) { return (signs >> i & 1) != 0 ? -value : value; }

}  // namespace weir
