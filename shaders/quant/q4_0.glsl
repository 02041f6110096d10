// Q4_0: nibbles, f16 scales. Contract: common/unpack.glsl.
#include "common/unpack.glsl"

void decode8(uvec2 data, uint n, uint b, uint g, out vec4 lo, out vec4 hi) {
    Words p = Words(data);
    const float scale = half_at(p, 4u * n, b);
    uvec4 a, c;
    nibbles8(p, b, g, a, c);
    lo = scale * vec4(ivec4(a) - 8);
    hi = scale * vec4(ivec4(c) - 8);
}
