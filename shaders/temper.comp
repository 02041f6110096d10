#version 460
// Computes: temper (lib/ops/temper_ref.cpp): q *= 1 + beta * log(1 + pos / n_tokens), the quotient rounded down.
// Shapes: q [n_tok, width]. Launch: a workgroup for each token, further ones in steps of the grid.
// Numerics: f32.
#extension GL_GOOGLE_include_directive : require
#include "common/math.glsl"
#include "common/subgroup.glsl"

layout(push_constant, std430) uniform Push { TemperPush a; };

void main() {
    const uint first = is_null(a.pos_at) ? a.pos : Words(a.pos_at).v[0];
    for (uint tok = gl_WorkGroupID.x; tok < a.n_tok; tok += gl_NumWorkGroups.x) {
        const float steps = float((first + tok) / a.n_tokens);
        const float factor = fma(a.beta, log_near(1.0 + steps), 1.0);
        for (uint i = gl_LocalInvocationID.x; i < a.width; i += kInvocations) {
            const uint at = tok * a.width + i;
            Floats(a.q).v[at] = Floats(a.q).v[at] * factor;
        }
    }
}
