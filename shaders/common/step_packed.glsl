// Several inputs of decode steps, packed by step_pack.comp: input c begins at vector c * stride. It has planes of bytes
// by block, hi of elements 0..15 and of 16..31, then lo of both; after them the blocks' scales and sums.
#ifndef WEIR_STEP_PACKED_GLSL
#define WEIR_STEP_PACKED_GLSL
#extension GL_EXT_control_flow_attributes : require
#include "common/memory.glsl"
#include "common/step_block.glsl"

layout(buffer_reference, std430, buffer_reference_align = 16) buffer Packed { uvec4 v[]; };

uint packed_scales(uint stride, uint n_blocks, uint column) { return 4u * (column * stride + 4u * n_blocks); }

// Block b of input `column`.
Input packed_block(uvec2 inputs, uint stride, uint n_blocks, uint column, uint b) {
    const uint first = column * stride + b, scales = packed_scales(stride, n_blocks, column);
    Input x;
    [[unroll]] for (uint h = 0u; h < 2u; ++h) {
        x.hi[h] = Packed(inputs).v[first + h * n_blocks];
        x.lo[h] = Packed(inputs).v[first + (2u + h) * n_blocks];
    }
    x.scale = Floats(inputs).v[scales + b];
    x.sum = int(Words(inputs).v[scales + n_blocks + b]);
    return x;
}

#endif
