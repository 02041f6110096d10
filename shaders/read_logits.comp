#version 460
// Computes: of each part of the vocabulary the largest logit and the sum of exp(logit - largest); single logits.
// Shapes: as in ReadLogitsPush. Launch: a workgroup for each part; without parts one.
// Numerics: f32, each sum in an order that never changes. NaN counts as -inf; what equals the largest adds 1, also
// where both are infinite. An empty part has -inf and 0.
#extension GL_GOOGLE_include_directive : require
#include "common/keys.glsl"
#include "pages.h"

layout(push_constant, std430) uniform Push { ReadLogitsPush a; };

void main() {
    for (uint i = gl_WorkGroupID.x * kThreads + invocation(); i < a.n_tokens; i += gl_NumWorkGroups.x * kThreads)
        OutWords(a.values).v[i] = floatBitsToUint(Floats(a.logits).v[Words(a.tokens).v[i]]);
    if (is_null(a.parts)) return;
    const uint first = gl_WorkGroupID.x * a.part_rows, end = min(first + a.part_rows, a.vocab_size);
    uint most = kKeyOfNothing;
    for (uint i = first + invocation(); i < end; i += kThreads) most = max(most, ordered_key(Floats(a.logits).v[i]));
    most = workgroup_most(most);
    const float best = float_of_key(most);
    precise float own = 0.0;
    for (uint i = first + invocation(); i < end; i += kThreads) {
        const float logit = Floats(a.logits).v[i];
        // Infinite ones by their keys: a driver may assume that there are none.
        const uint key = ordered_key(logit);
        own += key == most ? 1.0 : key == kKeyOfNothing || most == kKeyOfInfinity ? 0.0 : exp(logit - best);
    }
    const float sum = workgroup_sum(own);
    if (invocation() != 0u) return;
    OutWords(a.parts).v[2u * gl_WorkGroupID.x] = floatBitsToUint(best);
    OutWords(a.parts).v[2u * gl_WorkGroupID.x + 1u] = floatBitsToUint(sum);
}
