#version 460
// Computes: the experts of each token and their weights (choose_experts in lib/ops/experts_ref.cpp).
// Shapes: logits [n_tok, n_experts], choice_bias [n_experts], ids and weights [n_tok, n_used]. Launch: a workgroup for
// each token.
// Numerics: which experts: exact, of values in f32. Weights in f32. Infinities and NaN are tested by their bits.
#extension GL_GOOGLE_include_directive : require
#include "common/math.glsl"
#include "common/subgroup.glsl"

layout(push_constant, std430) uniform Push { RoutePush a; };

shared float values[kMaxRouted];  // what decides; NaN as -inf
shared uint is_chosen[kMaxRouted];
shared float group_values[kMaxRoutedGroups];
shared uint is_group_chosen[kMaxRoutedGroups];
shared float largest[kMaxSubgroups];
shared float most, all_shares;

const uint kInfinity = 0x7F800000u, kMinusInfinity = 0xFF800000u, kNaN = 0x7FC00000u;

bool has(uint flag) { return (a.flags & flag) != 0u; }
float logit_of(uint e) { return Floats(a.logits).v[gl_WorkGroupID.x * a.n_experts + e]; }
float ranked(float x) { return is_nan(x) ? uintBitsToFloat(kMinusInfinity) : x; }
uint group_of(uint e) { return e / (a.n_experts / a.n_groups); }
bool counts(uint e) { return a.n_groups <= 1u || is_group_chosen[group_of(e)] != 0u; }

// Experts are chosen by the larger value, then by the lower index; groups likewise.
uint rank_of(uint e) {
    const float own = values[e];
    uint rank = 0u;
    for (uint i = 0u; i < a.n_experts; ++i) {
        const bool before = values[i] > own || (values[i] == own && i < e);
        rank += before && counts(i) ? 1u : 0u;
    }
    return rank;
}

// A score before it is divided by the sum over all. In a softmax, what is infinite or NaN makes the sum NaN.
float share_of(uint e) {
    const float logit = logit_of(e);
    if (is_nan(logit)) return uintBitsToFloat(kNaN);
    if (!has(kRouteSoftmax)) return sigmoid(logit);
    const uint bits = floatBitsToUint(most);
    if (bits == kInfinity || bits == kMinusInfinity) return uintBitsToFloat(kNaN);
    return exp_near(logit - most);
}

float score_of(uint e) { return share_of(e) / all_shares; }

void find_most() {
    float own = uintBitsToFloat(kMinusInfinity);
    for (uint e = gl_LocalInvocationID.x; e < a.n_experts; e += kInvocations) own = max(own, ranked(logit_of(e)));
    own = subgroupMax(own);
    if (gl_SubgroupInvocationID == 0u) largest[gl_SubgroupID] = own;
    barrier();
    if (gl_LocalInvocationID.x == 0u) {
        most = largest[0];
        for (uint i = 1u; i < gl_NumSubgroups; ++i) most = max(most, largest[i]);
        all_shares = 1.0;
    }
    barrier();
}

// The sum over all is needed where experts are chosen by scores, or where weights are not divided by their own sum.
void sum_shares() {
    if (!has(kRouteSoftmax) || (has(kRouteByLogits) && has(kRouteNormalise))) return;
    float own = 0.0;
    for (uint e = gl_LocalInvocationID.x; e < a.n_experts; e += kInvocations) own += share_of(e);
    const float sum = workgroup_sum(own);
    if (gl_LocalInvocationID.x == 0u) all_shares = sum;
    barrier();
}

void choose_groups() {
    const uint g = gl_LocalInvocationID.x, n = a.n_experts / a.n_groups;
    if (g < a.n_groups) {
        float first = values[g * n], second = uintBitsToFloat(kMinusInfinity);
        for (uint e = g * n + 1u; e < (g + 1u) * n; ++e) {
            second = max(second, min(first, values[e]));
            first = max(first, values[e]);
        }
        group_values[g] = n == 1u ? first : first + second;
    }
    barrier();
    if (g < a.n_groups) {
        uint before = 0u;
        for (uint i = 0u; i < a.n_groups; ++i) {
            const bool is_before = group_values[i] > group_values[g] || (group_values[i] == group_values[g] && i < g);
            before += is_before ? 1u : 0u;
        }
        is_group_chosen[g] = before < a.n_groups_used ? 1u : 0u;
    }
    barrier();
}

void main() {
    const uint lane = gl_LocalInvocationID.x;
    find_most();
    sum_shares();
    for (uint e = lane; e < a.n_experts; e += kInvocations) {
        const float bias = is_null(a.choice_bias) ? 0.0 : Floats(a.choice_bias).v[e];
        values[e] = ranked(has(kRouteByLogits) ? logit_of(e) : score_of(e) + bias);
    }
    barrier();
    if (a.n_groups > 1u) choose_groups();
    for (uint e = lane; e < a.n_experts; e += kInvocations)
        is_chosen[e] = counts(e) && rank_of(e) < a.n_used ? 1u : 0u;
    barrier();
    float own = 0.0;
    for (uint e = lane; e < a.n_experts; e += kInvocations) {
        if (is_chosen[e] != 0u) own += score_of(e);
    }
    const float chosen_sum = workgroup_sum(own);
    const float sum = has(kRouteNormalise) ? chosen_sum + a.least : 1.0;
    for (uint e = lane; e < a.n_experts; e += kInvocations) {
        if (is_chosen[e] == 0u) continue;
        uint at = gl_WorkGroupID.x * a.n_used;
        for (uint i = 0u; i < e; ++i) at += is_chosen[i];
        OutWords(a.ids).v[at] = e;
        Floats(a.weights).v[at] = score_of(e) / sum * a.scale;
    }
}
