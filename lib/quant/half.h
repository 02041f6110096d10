// f16 (IEEE 754 binary16) and bf16 (the upper half of an f32) to f32 and back, in integer arithmetic only, so that
// every machine and compiler flag gives the same bits. Narrowing rounds to nearest, ties to even; overflow gives
// infinity. A NaN becomes a quiet NaN with the upper bits of its payload. Widening is exact. These are the definitions;
// vector code elsewhere must agree with them bit for bit.
#pragma once

#include <bit>
#include <cstdint>

namespace weir {

constexpr float bf16_to_f32(uint16_t h) { return std::bit_cast<float>(static_cast<uint32_t>(h) << 16); }

constexpr uint16_t f32_to_bf16(float f) {
  const uint32_t x = std::bit_cast<uint32_t>(f);
  if ((x & 0x7FFFFFFFu) > 0x7F800000u)
    return static_cast<uint16_t>(x >> 16 | 0x40u);  // rounding a NaN could give infinity
  return static_cast<uint16_t>((x + 0x7FFFu + (x >> 16 & 1u)) >> 16);
}

constexpr float f16_to_f32(uint16_t h) {
  const uint32_t sign = (h & 0x8000u) << 16;
  const uint32_t exponent = h >> 10 & 0x1Fu;
  const uint32_t mantissa = h & 0x3FFu;
  uint32_t x = 0;
  if (exponent == 0x1Fu) {  // infinity, or a NaN (made quiet)
    x = 0x7F800000u | mantissa << 13 | (mantissa != 0 ? 0x400000u : 0u);
  } else if (exponent != 0) {
    x = (exponent + (127 - 15)) << 23 | mantissa << 13;
  } else if (mantissa != 0) {  // subnormal, mantissa * 2^-24: shift its leading one into the hidden bit
    const auto shift = static_cast<uint32_t>(std::countl_zero(mantissa)) - 21;  // 1..10
    x = (127 - 15 + 1 - shift) << 23 | (mantissa << shift & 0x3FFu) << 13;
  }
  return std::bit_cast<float>(sign | x);
}

constexpr uint16_t f32_to_f16(float f) {
  const uint32_t x = std::bit_cast<uint32_t>(f);
  const auto sign = static_cast<uint16_t>(x >> 16 & 0x8000u);
  const uint32_t magnitude = x & 0x7FFFFFFFu;
  uint32_t h = 0;
  if (magnitude > 0x7F800000u) {
    h = 0x7E00u | (magnitude >> 13 & 0x3FFu);
  } else if (magnitude >= 0x47800000u) {  // 2^16 and above, infinity included
    h = 0x7C00u;
    // 2^-14 and above: normal. A carry may run into the exponent, up to infinity.
  } else if (magnitude >= 0x38800000u) {
    h = (magnitude - 0x38000000u + 0xFFFu + (magnitude >> 13 & 1u)) >> 13;
  } else if (magnitude >= 0x33000000u) {             // 2^-25 and above: subnormal, in units of 2^-24
    const uint32_t shift = 126 - (magnitude >> 23);  // 14..24
    const uint32_t mantissa = (magnitude & 0x7FFFFFu) | 0x800000u;
    const uint32_t rest = mantissa & ((1u << shift) - 1), half = 1u << (shift - 1);
    h = mantissa >> shift;
    if (rest > half || (rest == half && (h & 1u) != 0)) ++h;
  }
  return static_cast<uint16_t>(sign | h);
}

}  // namespace weir
