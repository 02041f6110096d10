#version 460
// Computes: what the GEMVs of decode steps make of their inputs, norm(x) in integers of 15 bits with a scale for each
// 32, for several inputs. They are those that step_gemv.comp makes of one input, bit for bit.
// Shapes: x, norm [32 * n_blocks]; at most 14,336 columns; out: common/step_packed.glsl.
// Launch: a workgroup for each input, with as many invocations as those GEMVs have.
#extension GL_GOOGLE_include_directive : require
#define WEIR_ANY_INVOCATIONS
#include "common/step_input.glsl"
#include "common/step_packed.glsl"
#include "shared.h"

layout(push_constant, std430) uniform Push { StepPackPush a; };

void main() {
    const uint column = gl_WorkGroupID.x, n = a.n_blocks;
    const uint me = gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID;
    take_input(a.x[column], a.norm, a.eps, n);
    for (uint i = me; i < 4u * n; i += kThreads)
        Packed(a.inputs).v[column * a.stride + i] = input_bytes[i / n * kInputBlocks + i % n];
    const uint scales = packed_scales(a.stride, n, column);
    for (uint i = me; i < n; i += kThreads) {
        Floats(a.inputs).v[scales + i] = input_scales[i];
        OutWords(a.inputs).v[scales + n + i] = uint(input_sums[i]);
    }
}
