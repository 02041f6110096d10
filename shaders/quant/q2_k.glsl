// Q2_K: two words of quants, a byte of sub-scale and sub-minimum for each half; f16 scale and min_scale. Contract:
// common/unpack.glsl.
#include "common/unpack.glsl"

void decode8(uvec2 data, uint n, uint b, uint g, out vec4 lo, out vec4 hi) {
    Words p = Words(data);
    const uint h = g >> 1, w = p.v[2u * b + h], shift = 4u * (g & 1u);
    const uint sub = u8_at(p, 2u * n, 2u * b + h), pair = p.v[n / 4u * 10u + (b >> 3)];
    const float step = half_of(pair & 0xFFFFu) * float(sub & 15u), low = half_of(pair >> 16) * float(sub >> 4);
    lo = step * vec4(bytes_of(w, shift, 3u)) - low;
    hi = step * vec4(bytes_of(w, shift + 2u, 3u)) - low;
}
