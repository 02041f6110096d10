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

// Values with the signs of four bits, from bit `shift` on.
vec4 with_signs(vec4 values, uint signs, uint shift) {
    const uvec4 sign = (uvec4(signs, signs >> 1, signs >> 2, signs >> 3) >> shift) << 31;
    return uintBitsToFloat(floatBitsToUint(values) ^ sign);
}
// Eight signs from seven: the eighth makes the count of minus signs even.
uint even_signs(uint seven) { return seven | (uint(bitCount(seven)) & 1u) << 7; }

#endif
