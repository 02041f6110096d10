#version 460
// Computes: softmax(scale * score) over each head's rows in use, in place.
// Shapes: score [n_heads, capacity]. Launch: a workgroup for each query head.
// Numerics: f32. A NaN among a head's scores makes all its weights NaN.
#extension GL_GOOGLE_include_directive : require
#include "common/keys.glsl"
#include "common/math.glsl"
#include "pages.h"

layout(push_constant, std430) uniform Push { PageSoftmaxPush a; };

void main() {
    const uint head = gl_WorkGroupID.x, first = head * a.capacity;
    const uint n = Words(a.n_pages).v[head / (a.n_heads / a.n_kv_heads)];
    Floats score = Floats(a.score);
    uint most = kKeyNever;
    for (uint row = invocation(); row < n; row += kInvocations)
        most = max(most, ordered_key(a.scale * score.v[first + row]));
    const float high = float_of_key(workgroup_most(most));
    float own = 0.0;
    for (uint row = invocation(); row < n; row += kInvocations) {
        precise float logit = a.scale * score.v[first + row];  // rounded, as when the largest was sought
        const float weight = exp_near(logit - high);
        score.v[first + row] = weight;
        own += weight;
    }
    const float sum = workgroup_sum(own);
    for (uint row = invocation(); row < n; row += kInvocations) score.v[first + row] /= sum;
}
