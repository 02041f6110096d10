#version 460
// Computes: the largest key of a logit, before step_end finds the lowest id that has it.
// Shapes: logits [vocab_size], best [2] zero before. Launch: any number of workgroups.
// Numerics: exact. NaN is left out: if all are NaN the key stays kKeyNever.
#extension GL_GOOGLE_include_directive : require
#include "common/keys.glsl"
#include "pages.h"

layout(push_constant, std430) uniform Push { BestLogitPush a; };
layout(buffer_reference, std430, buffer_reference_align = 4) coherent buffer Best { uint v[]; };

void main() {
    uint most = kKeyNever;
    for (uint i = gl_WorkGroupID.x * kInvocations + invocation(); i < a.vocab_size;
         i += gl_NumWorkGroups.x * kInvocations) {
        const float logit = Floats(a.logits).v[i];
        if (!is_nan(logit)) most = max(most, ordered_key(logit));
    }
    most = workgroup_most(most);
    if (invocation() == 0u) atomicMax(Best(a.best).v[0], most);
}
