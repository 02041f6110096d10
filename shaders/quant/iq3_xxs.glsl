// IQ3_XXS: two words of entries' numbers, a word of signs in bytes and sub-scale; f16 scales. Contract:
// common/unpack.glsl.
#include "common/grid.glsl"
#include "common/unpack.glsl"

const uint kIq3XxsGrid[128] = uint[128](
#include "quant/iq3_xxs_grid.inc"
);

// Halves: 2, 6, 10 .. 26, and 31.
vec4 iq3_xxs_values(uint entry) {
    const uint pair = kIq3XxsGrid[entry >> 1];
    const uvec4 q = grid3_numbers(pair >> (entry & 1u) * 16u);
    return vec4(q * 4u + 2u + uvec4(equal(q, uvec4(7u))));
}

void decode8(uvec2 data, uint n, uint b, uint g, out vec4 lo, out vec4 hi) {
    Words p = Words(data);
    const uint q = p.v[2u * b + (g >> 1)] >> (16u * (g & 1u)), word = p.v[2u * n + b];
    const uint signs = even_signs_of(word, g);
    const float step = 0.5 * half_at(p, 3u * n, b >> 3) * float(1u + 2u * (word >> 28));
    lo = with_low_bytes(step * iq3_xxs_values(q & 255u), signs);
    hi = with_high_bytes(step * iq3_xxs_values(q >> 8 & 255u), signs);
}
