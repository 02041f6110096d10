// Q5_0: nibbles, a word of fifth bits, f16 scales. Contract: common/unpack.glsl.
#include "common/unpack.glsl"

void decode8(uvec2 data, uint n, uint b, uint g, out vec4 lo, out vec4 hi) {
    Words p = Words(data);
    const float scale = half_at(p, 5u * n, b);
    const uint high = p.v[4u * n + b];
    uvec4 a, c;
    nibbles8(p, b, g, a, c);
    lo = scale * vec4(ivec4(a | bits_of(high, 8u * g) << 4) - 16);
    hi = scale * vec4(ivec4(c | bits_of(high, 8u * g + 4u) << 4) - 16);
}
