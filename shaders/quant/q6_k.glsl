// Q6_K: nibbles, two words of bits 4..5, two signed sub-scales; f16 scales. Contract: common/unpack.glsl.
#include "common/unpack.glsl"

void decode8(uvec2 data, uint n, uint b, uint g, out vec4 lo, out vec4 hi) {
    Words p = Words(data);
    const uint h = g >> 1, w = p.v[4u * n + 2u * b + h], shift = 4u * (g & 1u);
    const int sub = bitfieldExtract(int(u8_at(p, 6u * n, 2u * b + h)), 0, 8);
    const float step = half_at(p, n / 8u * 52u, b >> 3) * float(sub);
    uvec4 a, c;
    nibbles8(p, b, g, a, c);
    lo = step * vec4(ivec4(a | bytes_of(w, shift, 3u) << 4) - 32);
    hi = step * vec4(ivec4(c | bytes_of(w, shift + 2u, 3u) << 4) - 32);
}
