// IQ3_S: two words of entries' numbers, a word of signs in bytes, a byte of ninth bits; words of sub-scales, f16
// scales. Contract: common/unpack.glsl.
#include "common/grid.glsl"
#include "common/unpack.glsl"

const uint kIq3SGrid[256] = uint[256](
#include "quant/iq3_s_grid.inc"
);

vec4 iq3_s_values(uint entry) {
    const uint pair = kIq3SGrid[entry >> 1];
    return vec4(grid3_numbers(pair >> (entry & 1u) * 16u) * 2u + 1u);
}

void decode8(uvec2 data, uint n, uint b, uint g, out vec4 lo, out vec4 hi) {
    Words p = Words(data);
    const uint units = n / 8u, s = b & 7u;
    const uint q = p.v[2u * b + (g >> 1)] >> (16u * (g & 1u)), signs = signs_of(p.v[2u * n + b], g);
    const uint high = u8_at(p, 3u * n, b) >> (2u * g);
    const uint sub = p.v[26u * units + (b >> 3)] >> (4u * s) & 15u;
    const float step = half_at(p, 27u * units, b >> 3) * float(1u + 2u * sub);
    lo = with_low_bytes(step * iq3_s_values((q & 255u) | (high & 1u) << 8), signs);
    hi = with_high_bytes(step * iq3_s_values((q >> 8 & 255u) | (high >> 1 & 1u) << 8), signs);
}
