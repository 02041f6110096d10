#version 460
// Computes: the results of a row's units merged in ascending order, with the head's sink, and the masses of its listed
// pages (docs/algorithms.md, "Merging partial attention").
// Shapes: AttnMergePush says them. Launch: a workgroup for each head. Numerics: f32.
#extension GL_GOOGLE_include_directive : require
#include "common/attend.glsl"

layout(push_constant, std430) uniform Push { AttnMergePush a; };

void main() {
    const uint head = gl_WorkGroupID.x, lane = gl_LocalInvocationID.x;
    const uint n_listed = Words(a.n_listed).v[head / (a.n_heads / a.n_lists)];
    const uint n_units = (n_listed + kUnitPages - 1u) / kUnitPages;
    float seen = kUnseen;
    for (uint unit = 0u; unit < n_units; ++unit) seen = max(seen, Floats(a.high).v[unit * a.n_heads + head]);
    const float sink = is_null(a.sinks) ? kUnseen : Floats(a.sinks).v[head];
    const float top = max(seen, sink);
    // Each lane adds up its own channel, and all of them the total.
    float total = 0.0, own = 0.0;
    for (uint unit = 0u; unit < n_units; ++unit) {
        const uint at = unit * a.n_heads + head;
        const float high = Floats(a.high).v[at], share = high == kUnseen ? 0.0 : exp_near(high - top);
        total = fma(share, Floats(a.sum).v[at], total);
        if (lane < a.head_dim) own = fma(share, Floats(a.unit_results).v[at * a.head_dim + lane], own);
    }
    if (sink != kUnseen) total += exp_near(sink - top);
    const bool is_blind = seen == kUnseen;
    if (lane < a.head_dim) Floats(a.result).v[head * a.head_dim + lane] = is_blind ? 0.0 : own / total;
    if (!is_null(a.lse) && lane == 0u) Floats(a.lse).v[head] = top == kUnseen ? kUnseen : top + log_near(total);
    if (is_null(a.page_mass)) return;
    for (uint i = lane; i < n_listed; i += kInvocations) {
        const uint at = head * a.capacity + i;
        const float high = Floats(a.page_high).v[at];
        const float mass = high == kUnseen ? 0.0 : Floats(a.page_mass).v[at] * exp_near(high - top) / total;
        Floats(a.page_mass).v[at] = mass;
    }
}
