// What the types of shaders/quant_int share.
#ifndef WEIR_INT_WEIGHT_GLSL
#define WEIR_INT_WEIGHT_GLSL
#include "common/memory.glsl"
#include "common/step_block.glsl"
#include "common/unpack.glsl"

layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Quads { uvec4 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer Pairs { uvec2 v[]; };

// Elements 0..15 and 16..31 of a block as bytes.
uvec4[2] nibble_bytes(uvec4 w) { return uvec4[2](w & 0x0F0F0F0Fu, w >> 4 & 0x0F0F0F0Fu); }

// The same with a fifth bit each, those of a word.
uvec4 fifth_bits(uint bits) {
    const uvec4 four = uvec4(bits, bits >> 4, bits >> 8, bits >> 12) & 15u;
    return (four * 0x00204081u & 0x01010101u) << 4;
}
uvec4[2] five_bit_bytes(uvec4 w, uint high) {
    const uvec4 bytes[2] = nibble_bytes(w);
    return uvec4[2](bytes[0] | fifth_bits(high), bytes[1] | fifth_bits(high >> 16));
}

// What block b of a K-quant is multiplied with and what is subtracted, of a header of 8 blocks: f16 scale and
// min_scale, and the three words of lib/quant/k_scales.h.
vec2 k_step(uvec4 header, uint b) {
    const uvec3 sub = header.yzw >> 8u * (b & 3u) & 255u;
    const bool is_first = (b & 4u) == 0u;
    const uint scale = is_first ? sub.x & 63u : (sub.z & 15u) | sub.x >> 6 << 4;
    const uint minimum = is_first ? sub.y & 63u : sub.z >> 4 | sub.y >> 6 << 4;
    return vec2(half_of(header.x & 0xFFFFu) * float(scale), half_of(header.x >> 16) * float(minimum));
}

// Half a block of weights, signed bytes, times the input's values; at most 16 * 127 * 16,256 = 33e6.
int dot_half(uvec4 w, Input x, uint h) { return 128 * dot16(w, x.hi[h]) + dot16(w, x.lo[h]); }
int dot_block(uvec4 w[2], Input x) {
    return 128 * (dot16(w[0], x.hi[0]) + dot16(w[1], x.hi[1])) + dot16(w[0], x.lo[0]) + dot16(w[1], x.lo[1]);
}

#endif
