// IQ2_XXS: a word of entries' numbers, one of signs in nibbles and sub-scale; f16 scales. Contract: common/unpack.glsl.
#include "common/grid.glsl"
#include "common/unpack.glsl"

const uint kIq2XxsGrid[128] = uint[128](
#include "quant/iq2_xxs_grid.inc"
);

void decode8(uvec2 data, uint n, uint b, uint g, out vec4 lo, out vec4 hi) {
    Words p = Words(data);
    const uint number = p.v[2u * b] >> (8u * g) & 255u, word = p.v[2u * b + 1u];
    const uint entry = kIq2XxsGrid[number >> 1] >> (number & 1u) * 16u, signs = even_signs_of(word, g);
    const float step = 0.125 * half_at(p, 2u * n, b >> 3) * float(1u + 2u * (word >> 28));
    lo = with_low_nibbles(step * grid2_values(entry, 0u), signs);
    hi = with_high_nibbles(step * grid2_values(entry, 8u), signs);
}
