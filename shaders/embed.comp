#version 460
// Computes: rows of an embedding table, decoded and scaled (lib/ops/embed_ref.cpp).
// Shapes: x [n_tok, 32 * n_blocks], table of n blocks of 32 weights in planes, tokens [n_tok].
// Launch: x over groups of 8 weights of a row, y over tokens. Numerics: one product, exact decoding.
#extension GL_GOOGLE_include_directive : require
#include "common/subgroup.glsl"
#include "weight_type.glsl"

layout(push_constant, std430) uniform Push { EmbedPush a; };

void main() {
    const uint i = gl_WorkGroupID.x * kInvocations + gl_LocalInvocationID.x;
    if (i >= 4u * a.n_blocks) return;
    for (uint t = gl_WorkGroupID.y; t < a.n_tok; t += gl_NumWorkGroups.y) {
        vec4 lo, hi;
        decode8(a.table, a.n, Words(a.tokens).v[t] * a.n_blocks + i / 4u, i % 4u, lo, hi);
        const uint at = t * 8u * a.n_blocks + 2u * i;
        Vectors(a.x).v[at] = lo * a.scale;
        Vectors(a.x).v[at + 1u] = hi * a.scale;
    }
}
