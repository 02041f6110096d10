// What the types of shaders/quant_int share.
#ifndef WEIR_INT_WEIGHT_GLSL
#define WEIR_INT_WEIGHT_GLSL
#include "common/step_input.glsl"
#include "common/unpack.glsl"

layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Quads { uvec4 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer Pairs { uvec2 v[]; };

// Elements 0..15 and 16..31 of a block as bytes.
uvec4[2] nibble_bytes(uvec4 w) { return uvec4[2](w & 0x0F0F0F0Fu, w >> 4 & 0x0F0F0F0Fu); }

// Half a block of weights, signed bytes, times the input's values; at most 16 * 127 * 16,256 = 33e6.
int dot_half(uvec4 w, Input x, uint h) { return 128 * dot16(w, x.hi[h]) + dot16(w, x.lo[h]); }
int dot_block(uvec4 w[2], Input x) {
    return 128 * (dot16(w[0], x.hi[0]) + dot16(w[1], x.hi[1])) + dot16(w[0], x.lo[0]) + dot16(w[1], x.lo[1]);
}

#endif
