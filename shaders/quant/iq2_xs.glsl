// IQ2_XS: two words of entries' numbers and signs, a byte of sub-scales; f16 scales. Contract: common/unpack.glsl.
#include "common/grid.glsl"
#include "common/unpack.glsl"

const uint kIq2XsGrid[256] = uint[256](
#include "quant/iq2_xs_grid.inc"
);

void decode8(uvec2 data, uint n, uint b, uint g, out vec4 lo, out vec4 hi) {
    Words p = Words(data);
    const uint q = u16_at(p, 0u, 4u * b + g), signs = even_signs(q >> 9);
    const uint entry = kIq2XsGrid[q >> 1 & 255u] >> (q & 1u) * 16u;
    const uint sub = u8_at(p, 2u * n, b) >> (4u * (g >> 1)) & 15u;
    const float step = 0.125 * half_at(p, n / 4u * 9u, b >> 3) * float(1u + 2u * sub);
    lo = with_signs(step * grid2_values(entry, 0u), signs, 0u);
    hi = with_signs(step * grid2_values(entry, 8u), signs, 4u);
}
