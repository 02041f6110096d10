// Numbers in parts of words, for shaders/quant.
//
// Contract of every shaders/quant/<type>.glsl:
//   void decode8(uvec2 data, uint n, uint b, uint g, out vec4 lo, out vec4 hi)
// gives the weights 8g .. 8g+7 (g in 0..3) of block b, of 32 weights, of a matrix of n such blocks, whose planes lie at
// `data` as lib/quant/<type>.h says. Products that are exact there are exact here, so the bits are the same.
#ifndef WEIR_UNPACK_GLSL
#define WEIR_UNPACK_GLSL
#include "common/memory.glsl"

// The f16 with these 16 bits, subnormal numbers included: drivers may flush them in unpackHalf2x16.
float half_of(uint h) {
    const uint sign = (h & 0x8000u) << 16, exponent = h >> 10 & 31u, mantissa = h & 0x3FFu;
    if (exponent == 0u) return uintBitsToFloat(floatBitsToUint(float(mantissa) * 5.9604644775390625e-8) | sign);
    if (exponent == 31u) {
        const uint quiet = mantissa != 0u ? 0x400000u : 0u;
        return uintBitsToFloat(sign | 0x7F800000u | mantissa << 13 | quiet);
    }
    return uintBitsToFloat(sign | (exponent + 112u) << 23 | mantissa << 13);
}
float bf16_of(uint h) { return uintBitsToFloat(h << 16); }

// Element i of a plane of 16-bit or 8-bit numbers that begins at word `first`.
uint u16_at(Words p, uint first, uint i) { return p.v[first + (i >> 1)] >> (16u * (i & 1u)) & 0xFFFFu; }
uint u8_at(Words p, uint first, uint i) { return p.v[first + (i >> 2)] >> (8u * (i & 3u)) & 0xFFu; }
float half_at(Words p, uint first, uint i) { return half_of(u16_at(p, first, i)); }

// The four bytes of a word, or the same bits of each.
uvec4 bytes_of(uint w, uint shift, uint mask) { return (uvec4(w, w >> 8, w >> 16, w >> 24) >> shift) & mask; }
// Four neighbouring nibbles, from bit `shift` on.
uvec4 nibbles_of(uint w, uint shift) { return (uvec4(w, w >> 4, w >> 8, w >> 12) >> shift) & 15u; }
// Four neighbouring bits.
uvec4 bits_of(uint w, uint shift) { return (uvec4(w, w >> 1, w >> 2, w >> 3) >> shift) & 1u; }
ivec4 signed_bytes(uint w) {
    return ivec4(bitfieldExtract(int(w), 0, 8), bitfieldExtract(int(w), 8, 8), bitfieldExtract(int(w), 16, 8),
                 bitfieldExtract(int(w), 24, 8));
}

// Weights 8g .. 8g+7 of a block of 16 bytes, of which the low nibbles are weights 0..15 and the high ones 16..31.
void nibbles8(Words p, uint b, uint g, out uvec4 lo, out uvec4 hi) {
    const uint at = 4u * b + 2u * (g & 1u), shift = g >> 1 << 2;
    lo = bytes_of(p.v[at], shift, 15u);
    hi = bytes_of(p.v[at + 1u], shift, 15u);
}

// Indices 8g .. 8g+7 of a block of 16 bytes in the order of lib/quant/codebook.h, which has bits 2 and 3 exchanged.
void indices8(Words p, uint b, uint g, out uvec4 lo, out uvec4 hi) {
    const uint at = 4u * b + 2u * (g & 1u), shift = g >> 1 << 4;
    lo = nibbles_of(p.v[at], shift);
    hi = nibbles_of(p.v[at + 1u], shift);
    lo = (lo & 3u) | (lo & 4u) << 1 | (lo & 8u) >> 1;
    hi = (hi & 3u) | (hi & 4u) << 1 | (hi & 8u) >> 1;
}

// Sub-scale and sub-minimum s of the three words of lib/quant/k_scales.h.
void k_scale(Words p, uint first, uint s, out float scale, out float minimum) {
    const uint i = s & 3u;
    const uint a = u8_at(p, first, i), m = u8_at(p, first + 1u, i), low = u8_at(p, first + 2u, i);
    scale = float(s < 4u ? a & 63u : (low & 15u) | a >> 6 << 4);
    minimum = float(s < 4u ? m & 63u : low >> 4 | m >> 6 << 4);
}

#endif
