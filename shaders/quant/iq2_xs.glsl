// IQ2_XS: a word of entries' numbers, one of signs in nibbles and ninth bits, a byte of sub-scales; f16 scales.
// Contract: common/unpack.glsl.
#include "common/grid.glsl"
#include "common/unpack.glsl"

const uint kIq2XsGrid[256] = uint[256](
#include "quant/iq2_xs_grid.inc"
);

void decode8(uvec2 data, uint n, uint b, uint g, out vec4 lo, out vec4 hi) {
    Words p = Words(data);
    const uint word = p.v[2u * b + 1u], signs = even_signs_of(word, g);
    const uint number = (p.v[2u * b] >> (8u * g) & 255u) | (word >> (28u + g) & 1u) << 8;
    const uint entry = kIq2XsGrid[number >> 1] >> (number & 1u) * 16u;
    const uint sub = u8_at(p, 2u * n, b) >> (4u * (g >> 1)) & 15u;
    const float step = 0.125 * half_at(p, n / 4u * 9u, b >> 3) * float(1u + 2u * sub);
    lo = with_low_nibbles(step * grid2_values(entry, 0u), signs);
    hi = with_high_nibbles(step * grid2_values(entry, 8u), signs);
}
