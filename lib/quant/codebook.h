// Weights as 4-bit indices of a table of 16 signed bytes, for devices whose byte permutation reads four of eight
// entries at a time and takes a nibble as a selector; so the host stores the indices in the order in which they are
// used.
//
// Two permutations suffice for 16 entries. Bit 3 of a selector says that the entry's sign is copied to all its bits, so
// an index of four bits selects an entry of the first eight or, bit 3 set, only its sign; with bit 3 inverted the same
// for the second eight. XOR joins the two: both entries of a pair have one sign, which the first table keeps, and the
// second table has the bits of negative entries inverted. Hence the order of the table: 0..3 and 8..11, then 4..7 and
// 12..15, as the first eight values are negative or (MXFP4, whose minus zero becomes zero) the last.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weir {

// A table of 16 values, in words of which the first byte is the first entry. Constants and not an array, so that code
// of a device may use them.
template <const int8_t (&kValues)[16]>
struct Codebook {
  // The selector of a weight with number n: bits 2 and 3 change places. A second zero becomes the first.
  static constexpr uint8_t index(uint32_t n) {
    if (kValues[n] == 0) n = 0;
    return static_cast<uint8_t>((n & 3) | (n & 8) >> 1 | (n & 4) << 1);
  }
  // Entry i (0..7) of one of the two tables.
  static constexpr uint8_t entry(uint32_t i, bool second) {
    const uint32_t n = (i & 3) + (i & 4) * 2;
    const bool negative = kValues[n + 4] < 0;
    if (second) return static_cast<uint8_t>(negative ? ~kValues[n + 4] : kValues[n + 4]);
    return static_cast<uint8_t>(negative && kValues[n] == 0 ? -1 : kValues[n]);  // a zero that index() does not select
  }
  static constexpr uint32_t word(uint32_t first, bool second) {
    uint32_t w = 0;
    for (uint32_t i = 0; i < 4; ++i) w |= uint32_t{entry(first + i, second)} << (8 * i);
    return w;
  }
  static constexpr bool same_signs() {
    for (uint32_t i = 0; i < 8; ++i) {
      if (entry(i, false) >> 7 != (kValues[(i & 3) + (i & 4) * 2 + 4] < 0 ? 1 : 0)) return false;
    }
    return true;
  }
  static_assert(same_signs());
  static constexpr uint32_t kFirst[2] = {word(0, false), word(4, false)}, kSecond[2] = {word(0, true), word(4, true)};

  // Puts the 16 bytes of a block (low nibbles: weights 0..15, high ones: 16..31) into the order of look_up: word i has
  // weights 4i .. 4i+3 in its low and 16+4i .. 16+4i+3 in its high 16 bits.
  static void place(const uint8_t* q, uint8_t* out) {
    for (size_t i = 0; i < 16; i += 2) {
      const size_t at = i / 4 * 4 + i % 4 / 2;
      out[at] = static_cast<uint8_t>(index(q[i] & 15u) | index(q[i + 1] & 15u) << 4);
      out[at + 2] = static_cast<uint8_t>(index(q[i] >> 4u) | index(q[i + 1] >> 4u) << 4);
    }
  }
};

}  // namespace weir
