// Q5_K: nibbles, a word of fifth bits; for every 8 blocks the headers of Q4_K. Contract: common/unpack.glsl.
#include "common/unpack.glsl"

void decode8(uvec2 data, uint n, uint b, uint g, out vec4 lo, out vec4 hi) {
    Words p = Words(data);
    const uint at = 5u * n + 4u * (b >> 3), pair = p.v[at], high = p.v[4u * n + b];
    float scale, minimum;
    k_scale(p, at + 1u, b & 7u, scale, minimum);
    const float step = half_of(pair & 0xFFFFu) * scale, low = half_of(pair >> 16) * minimum;
    uvec4 a, c;
    nibbles8(p, b, g, a, c);
    lo = step * vec4(a | bits_of(high, 8u * g) << 4) - low;
    hi = step * vec4(c | bits_of(high, 8u * g + 4u) << 4) - low;
}
