#version 460
// Computes: the experts of each token and their weights (choose_experts in lib/ops/experts_ref.cpp).
// Shapes: logits [n_tok, n_experts], ids and weights [n_tok, n_used]. Launch: a workgroup for each token.
// Numerics: which experts: exact. Weights in f32. Infinities and NaN are tested by their bits.
#extension GL_GOOGLE_include_directive : require
#include "common/math.glsl"
#include "common/subgroup.glsl"

layout(push_constant, std430) uniform Push { RoutePush a; };

shared float logits[kMaxRouted];  // NaN as -inf
shared uint is_chosen[kMaxRouted];
shared float best_logit;

const uint kInfinity = 0x7F800000u;

// Experts are chosen by the larger logit, then by the lower index.
uint rank_of(uint e) {
    const float own = logits[e];
    uint rank = 0u;
    for (uint i = 0u; i < a.n_experts; ++i) rank += logits[i] > own || (logits[i] == own && i < e) ? 1u : 0u;
    return rank;
}

// What is infinite or NaN makes the sum NaN.
float share_of(uint e) {
    const float logit = Floats(a.logits).v[gl_WorkGroupID.x * a.n_experts + e];
    const uint bits = floatBitsToUint(best_logit);
    if (is_nan(logit) || bits == kInfinity || bits == (kInfinity | 0x80000000u)) return uintBitsToFloat(0x7FC00000u);
    return exp_near(logit - best_logit);
}

void main() {
    const uint lane = gl_LocalInvocationID.x;
    for (uint e = lane; e < a.n_experts; e += kInvocations) {
        const float logit = Floats(a.logits).v[gl_WorkGroupID.x * a.n_experts + e];
        logits[e] = is_nan(logit) ? uintBitsToFloat(kInfinity | 0x80000000u) : logit;
    }
    barrier();
    for (uint e = lane; e < a.n_experts; e += kInvocations) {
        const uint rank = rank_of(e);
        is_chosen[e] = rank < a.n_used ? 1u : 0u;
        if (rank == 0u) best_logit = logits[e];
    }
    barrier();
    float own = 0.0;
    for (uint e = lane; e < a.n_experts; e += kInvocations) {
        if (is_chosen[e] != 0u || a.rule == kRouteAll) own += share_of(e);
    }
    const float sum = workgroup_sum(own);
    for (uint e = lane; e < a.n_experts; e += kInvocations) {
        if (is_chosen[e] == 0u) continue;
        uint at = gl_WorkGroupID.x * a.n_used;
        for (uint i = 0u; i < e; ++i) at += is_chosen[i];
        OutWords(a.ids).v[at] = e;
        Floats(a.weights).v[at] = share_of(e) / sum;
    }
}
