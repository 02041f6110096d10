#version 460
// Computes: step_end, after best_logit: the lowest id with the largest key, and the step is counted.
// Shapes: logits [vocab_size], state and mailbox [kStateWords]. Launch: any number of workgroups, of which the last one
// to finish writes; `counter` and both words of `best` are zero again then.
// Numerics: exact.
#extension GL_GOOGLE_include_directive : require
#include "common/keys.glsl"
#include "pages.h"

layout(push_constant, std430) uniform Push { StepEndPush a; };
layout(buffer_reference, std430, buffer_reference_align = 4) coherent buffer Shared { uint v[]; };

void main() {
    const uint key = Shared(a.best).v[0];
    uint lowest = 0xFFFFFFFFu;
    for (uint i = gl_WorkGroupID.x * kInvocations + invocation(); key != kKeyNever && i < a.vocab_size;
         i += gl_NumWorkGroups.x * kInvocations) {
        const float logit = Floats(a.logits).v[i];
        if (!is_nan(logit) && ordered_key(logit) == key) lowest = min(lowest, i);
    }
    lowest = workgroup_least(lowest);
    if (invocation() != 0u) return;
    atomicMax(Shared(a.best).v[1], ~lowest);
    memoryBarrierBuffer();
    if (atomicAdd(Shared(a.counter).v[0], 1u) + 1u != gl_NumWorkGroups.x) return;
    memoryBarrierBuffer();
    const uint id = ~atomicExchange(Shared(a.best).v[1], 0u);  // without a key ~0, which is -1
    Shared(a.best).v[0] = 0u;
    Shared(a.counter).v[0] = 0u;
    Shared state = Shared(a.state);
    state.v[kStateNextToken] = id;
    if (a.commit != 0u && state.v[kStateLate] == 0u) {
        ++state.v[kStateTokens];
        state.v[kStateRecurrent] ^= 1u;
    }
    for (uint i = 0u; i < 2u; ++i) state.v[kStateEvictedBefore + i] = state.v[kStateEvicted + i];
    for (uint i = 0u; i < kStateWords; ++i) Shared(a.mailbox).v[i] = state.v[i];
}
