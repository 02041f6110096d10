// BF16: one plane of 16-bit numbers. Contract: common/unpack.glsl.
#include "common/unpack.glsl"

void decode8(uvec2 data, uint n, uint b, uint g, out vec4 lo, out vec4 hi) {
    Words p = Words(data);
    const uint at = 16u * b + 4u * g;
    const uvec4 w = uvec4(p.v[at], p.v[at + 1u], p.v[at + 2u], p.v[at + 3u]);
    lo = vec4(bf16_of(w.x & 0xFFFFu), bf16_of(w.x >> 16), bf16_of(w.y & 0xFFFFu), bf16_of(w.y >> 16));
    hi = vec4(bf16_of(w.z & 0xFFFFu), bf16_of(w.z >> 16), bf16_of(w.w & 0xFFFFu), bf16_of(w.w >> 16));
}
