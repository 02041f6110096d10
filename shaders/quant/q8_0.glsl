// Q8_0: two planes of 16 signed bytes, one of f16 scales. Contract: common/unpack.glsl.
#include "common/unpack.glsl"

void decode8(uvec2 data, uint n, uint b, uint g, out vec4 lo, out vec4 hi) {
    Words p = Words(data);
    const float scale = half_at(p, 8u * n, b);
    const uint at = 4u * ((g >> 1) * n + b) + 2u * (g & 1u);
    lo = scale * vec4(signed_bytes(p.v[at]));
    hi = scale * vec4(signed_bytes(p.v[at + 1u]));
}
