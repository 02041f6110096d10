// IQ4_XS: indices of values; for every 8 blocks f16 scale, u16 and four bytes of sub-scales. Contract:
// common/unpack.glsl.
#include "common/iq4_values.glsl"
#include "common/unpack.glsl"

void decode8(uvec2 data, uint n, uint b, uint g, out vec4 lo, out vec4 hi) {
    Words p = Words(data);
    const uint at = 4u * n + 2u * (b >> 3), s = b & 7u, head = p.v[at], low = p.v[at + 1u];
    const uint sub = (low >> (4u * s) & 15u) | (head >> (16u + 2u * s) & 3u) << 4;
    const float step = half_of(head & 0xFFFFu) * float(int(sub) - 32);
    uvec4 a, c;
    indices8(p, b, g, a, c);
    lo = step * iq4_values(a);
    hi = step * iq4_values(c);
}
