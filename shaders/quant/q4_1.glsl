// Q4_1: nibbles, pairs of f16: scale and minimum. Contract: common/unpack.glsl.
#include "common/unpack.glsl"

void decode8(uvec2 data, uint n, uint b, uint g, out vec4 lo, out vec4 hi) {
    Words p = Words(data);
    const uint pair = p.v[4u * n + b];
    const float scale = half_of(pair & 0xFFFFu), minimum = half_of(pair >> 16);
    uvec4 a, c;
    nibbles8(p, b, g, a, c);
    lo = scale * vec4(a) + minimum;
    hi = scale * vec4(c) + minimum;
}
