// Q3_K: three words of quants, sub-scales in two planes, f16 scales. Contract: common/unpack.glsl.
#include "common/unpack.glsl"

// Quants 4i .. 4i+3 of a half of a block. Those of i = 3 lie in the highest bits of the nibbles of the three words.
uvec4 quants4(uvec3 w, uint half_of_block, uint i) {
    const uint shift = 16u * half_of_block;
    if (i < 3u) return nibbles_of(w[i], shift) & 7u;
    return nibbles_of(w.x, shift) >> 3 | nibbles_of(w.y, shift) >> 3 << 1 | nibbles_of(w.z, shift) >> 3 << 2;
}

void decode8(uvec2 data, uint n, uint b, uint g, out vec4 lo, out vec4 hi) {
    Words p = Words(data);
    const uvec3 w = uvec3(p.v[2u * b], p.v[2u * b + 1u], p.v[2u * n + b]);
    const uint h = g >> 1, units = n / 8u, low = u8_at(p, 3u * n, b) >> (4u * h) & 15u;
    const uint top = p.v[26u * units + (b >> 3)] >> (4u * (b & 7u) + 2u * h) & 3u;
    const float step = half_at(p, 27u * units, b >> 3) * float(int(low | top << 4) - 32);
    lo = step * vec4(ivec4(quants4(w, h, 2u * (g & 1u))) - 4);
    hi = step * vec4(ivec4(quants4(w, h, 2u * (g & 1u) + 1u)) - 4);
}
