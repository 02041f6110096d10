#version 460
// Computes: y += the sum over a token's experts of weight * (W inner (+ bias)), the experts in ascending order.
// Shapes: stack [n_experts * n_rows, 32 * n_blocks] in planes, inner [n_tok, n_used, 32 * n_blocks], ids and weights
// [n_tok, n_used], y [n_tok, n_rows]. Launch: a subgroup for each row of y, tokens along y. Numerics: sums in f32.
#extension GL_GOOGLE_include_directive : require
#include "common/dot_row.glsl"

layout(push_constant, std430) uniform Push { ExpertDownPush a; };

void main() {
    const uint step = gl_NumWorkGroups.x * gl_NumSubgroups;
    for (uint token = gl_WorkGroupID.y; token < a.n_tok; token += gl_NumWorkGroups.y) {
        for (uint r = gl_WorkGroupID.x * gl_NumSubgroups + gl_SubgroupID; r < a.n_rows; r += step) {
            precise float y = Floats(a.y).v[token * a.n_rows + r];
            for (uint at = token * a.n_used; at < (token + 1u) * a.n_used; ++at) {
                const uint row = Words(a.ids).v[at] * a.n_rows + r;
                float sum[kMostColumns];
                dot_row(a.w, a.n, a.n_blocks, row, a.inner, at, at + 1u, sum);
                const float bias = is_null(a.bias) ? 0.0 : Floats(a.bias).v[row];
                y = fma(Floats(a.weights).v[at], sum[0] + bias, y);
            }
            if (gl_SubgroupInvocationID == 0u) Floats(a.y).v[token * a.n_rows + r] = y;
        }
    }
}
