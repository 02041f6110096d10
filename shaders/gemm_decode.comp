#version 460
// Computes: blocks of a matrix of weights in f16.
// Shapes: W of n blocks of 32 weights in planes, out [n_blocks, 32] of the blocks from `first` on.
// Launch: an invocation for each 8 weights, in steps of the grid. Numerics: decoded in f32, rounded once.
#extension GL_GOOGLE_include_directive : require
#include "common/memory.glsl"
#include "shared.h"
#include "weight_type.glsl"

layout(local_size_x = 256) in;
layout(push_constant, std430) uniform Push { GemmDecodePush a; };
layout(buffer_reference, std430, buffer_reference_align = 16) writeonly buffer Eights { uvec4 v[]; };

void main() {
    for (uint i = gl_WorkGroupID.x * kInvocations + gl_LocalInvocationID.x; i < 4u * a.n_blocks;
         i += gl_NumWorkGroups.x * kInvocations) {
        vec4 lo, hi;
        decode8(a.w, a.n, a.first + i / 4u, i % 4u, lo, hi);
        Eights(a.out_weights).v[i] =
            uvec4(packHalf2x16(lo.xy), packHalf2x16(lo.zw), packHalf2x16(hi.xy), packHalf2x16(hi.zw));
    }
}
