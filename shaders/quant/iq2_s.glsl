// IQ2_S: a word of entries' numbers, a word of signs in nibbles, a byte of their highest bits, a byte of sub-scales;
// f16 scales. Contract: common/unpack.glsl.
#include "common/grid.glsl"
#include "common/unpack.glsl"

const uint kIq2SGrid[512] = uint[512](
#include "quant/iq2_s_grid.inc"
);

void decode8(uvec2 data, uint n, uint b, uint g, out vec4 lo, out vec4 hi) {
    Words p = Words(data);
    const uint units = n / 8u, signs = signs_of(p.v[n + b], g), high = u8_at(p, 2u * n, b) >> (2u * g) & 3u;
    const uint number = (p.v[b] >> (8u * g) & 255u) | high << 8;
    const uint entry = kIq2SGrid[number >> 1] >> (number & 1u) * 16u;
    const uint sub = u8_at(p, 18u * units, b) >> (4u * (g >> 1)) & 15u;
    const float step = 0.125 * half_at(p, 20u * units, b >> 3) * float(1u + 2u * sub);
    lo = with_low_nibbles(step * grid2_values(entry, 0u), signs);
    hi = with_high_nibbles(step * grid2_values(entry, 8u), signs);
}
