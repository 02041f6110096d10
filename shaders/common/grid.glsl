// What the types with grids have in common (lib/quant/grid.h). A shader includes one grid, of pairs of 16-bit numbers,
// as an array of words.
#ifndef WEIR_GRID_GLSL
#define WEIR_GRID_GLSL

#define G(even, odd) (even | odd << 16)

// The magnitudes of four of the eight weights of an entry, from bit `shift` on.
vec4 grid2_values(uint entry, uint shift) {
    const uvec4 q = (uvec4(entry, entry >> 2, entry >> 4, entry >> 6) >> shift) & 3u;
    return vec4(8u + 17u * q + (q >> 1));  // 8, 25, 43
}
// The numbers of the four weights of an entry.
uvec4 grid3_numbers(uint entry) { return uvec4(entry, entry >> 4, entry >> 8, entry >> 12) & 7u; }

// Signs of eight weights in the order of nibbles and in that of bytes (lib/quant/grid.h), moved so that those of entry
// g begin at bit 0: they are bits 0, 4, 8 .. 28, or bits 0, 8, 16, 24 and 4, 12, 20, 28. The last is bit 28 in both.
uint signs_of(uint signs, uint g) { return signs >> g & 0x11111111u; }
// The same from seven signs: the eighth makes the count of minus signs even.
uint even_signs_of(uint signs, uint g) {
    const uint seven = signs >> g & 0x01111111u;
    return seven | uint(bitCount(seven)) << 28;
}
// Values with such signs, weights 0..3 and 4..7.
vec4 with_signs(vec4 values, uvec4 signs) { return uintBitsToFloat(floatBitsToUint(values) ^ signs << 31); }
vec4 with_low_nibbles(vec4 values, uint s) { return with_signs(values, uvec4(s, s >> 4, s >> 8, s >> 12)); }
vec4 with_high_nibbles(vec4 values, uint s) { return with_low_nibbles(values, s >> 16); }
vec4 with_low_bytes(vec4 values, uint s) { return with_signs(values, uvec4(s, s >> 8, s >> 16, s >> 24)); }
vec4 with_high_bytes(vec4 values, uint s) { return with_low_bytes(values, s >> 4); }

#endif
