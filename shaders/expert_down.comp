#version 460
// Computes: y += the sum over a token's experts of weight * (W inner (+ bias)), the experts in ascending order.
// Shapes: stack [n_experts * n_rows, 32 * n_blocks] in planes, inner [n_tok, n_used, 32 * n_blocks], ids and weights
// [n_tok, n_used], y [n_tok, n_rows]. Launch: a subgroup for every two rows of y, tokens along y.
// Numerics: sums in f32.
#extension GL_GOOGLE_include_directive : require
#include "common/dot_row.glsl"

layout(push_constant, std430) uniform Push { ExpertDownPush a; };

void main() {
    const uint step = 2u * gl_NumWorkGroups.x * gl_NumSubgroups;
    for (uint token = gl_WorkGroupID.y; token < a.n_tok; token += gl_NumWorkGroups.y) {
        for (uint r = 2u * (gl_WorkGroupID.x * gl_NumSubgroups + gl_SubgroupID); r < a.n_rows; r += step) {
            const uint next = min(r + 1u, a.n_rows - 1u);
            precise float y = Floats(a.y).v[token * a.n_rows + r], z = Floats(a.y).v[token * a.n_rows + next];
            for (uint at = token * a.n_used; at < (token + 1u) * a.n_used; ++at) {
                const uint expert = Words(a.ids).v[at] * a.n_rows;
                const float weight = Floats(a.weights).v[at];
                float even[kMaxColumns], odd[kMaxColumns];
                dot_rows(a.w, expert + r, a.w, expert + next, a.n, a.n_blocks, a.inner, at, at + 1u, even, odd);
                y = fma(weight, even[0] + (is_null(a.bias) ? 0.0 : Floats(a.bias).v[expert + r]), y);
                z = fma(weight, odd[0] + (is_null(a.bias) ? 0.0 : Floats(a.bias).v[expert + next]), z);
            }
            if (gl_SubgroupInvocationID == 0u) {
                Floats(a.y).v[token * a.n_rows + r] = y;
                if (next != r) Floats(a.y).v[token * a.n_rows + next] = z;
            }
        }
    }
}
