// What the types with grids have in common (IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS, IQ3_S): the magnitudes of four or eight
// neighbouring weights are an entry of a table, their signs are bits of their own. The tables, <type>_grid.inc, hold
// numbers of two or three bits, which select a magnitude; a step is an odd multiple of a part of the block's scale.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace weir {

// The magnitudes of the types of two bits, all the same.
inline constexpr uint8_t kGrid2Values[4] = {8, 25, 43, 0};

// Weight k of an entry of eight (two bits each) or of four (three bits in a nibble).
constexpr int grid2_weight(uint32_t entry, size_t k) { return kGrid2Values[entry >> (2 * k) & 3]; }
template <size_t kN>
constexpr int grid3_weight(const uint8_t (&values)[kN], uint32_t entry, size_t k) {
  return values[entry >> (4 * k) & 7];
}

// The bytes of four numbers of seven bits, from bit 0 of a word on.
constexpr uint32_t sevens_in_bytes(uint32_t word) {
  return (word & 0x7Fu) | (word << 1 & 0x7F00u) | (word << 2 & 0x7F0000u) | (word << 3 & 0x7F000000u);
}

// The sign bits of 32 weights from four numbers of seven bits each, from bit 0 on; the four bits above are ignored. The
// eighth sign of a number makes the count of minus signs even.
constexpr uint32_t even_signs(uint32_t word) {
  const uint32_t seven = sevens_in_bytes(word);
  uint32_t odd = seven ^ seven >> 4;  // bit 0 of each byte gathers the parity; what comes in from above is dropped
  odd ^= odd >> 2;
  odd ^= odd >> 1;
  return seven | (odd & 0x01010101u) << 7;
}

// Orders of the signs of 32 weights in the planes that GPUs read, in which one shift moves all the signs of an entry
// where a permutation of bytes wants them. Bit 8j + k, the sign of weight k of eight, goes to bit j of nibble k for
// entries of eight, whose weights are chosen by nibbles; to bit 4(k / 4) + j of byte k % 4 for entries of four, whose
// weights are bytes. So in both, signs that are not stored, those of weights 7, leave a nibble of their own, the last.
constexpr uint32_t signs_in_nibbles(uint32_t signs) {
  uint32_t out = 0;
  for (uint32_t i = 0; i < 32; ++i) out |= (signs >> i & 1u) << (4 * (i % 8) + i / 8);
  return out;
}
constexpr uint32_t signs_in_bytes(uint32_t signs) {
  uint32_t out = 0;
  for (uint32_t i = 0; i < 32; ++i) out |= (signs >> i & 1u) << (8 * (i % 4) + i % 8 / 4 * 4 + i / 8);
  return out;
}

// Writes the eight words of a block's signs, 32 bytes of the file, in one of these orders.
template <class Order>
void place_signs(const uint8_t* signs, Order order, uint8_t* out) {
  for (size_t s = 0; s < 8; ++s) {
    uint32_t word;
    std::memcpy(&word, signs + 4 * s, 4);
    word = order(word);
    std::memcpy(out + 4 * s, &word, 4);
  }
}

// Value with the sign of bit i.
constexpr float with_sign(float value, uint32_t signs, size_t i) { return (signs >> i & 1) != 0 ? -value : value; }

}  // namespace weir
