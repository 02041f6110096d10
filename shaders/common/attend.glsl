// What the kernels of prompts' attention share: a team has a query row of one head, a lane of it the channels
// 32 i + 4 lane .. + 3.
#ifndef WEIR_ATTEND_GLSL
#define WEIR_ATTEND_GLSL
#include "common/pages.glsl"
#include "common/team.glsl"
#extension GL_EXT_control_flow_attributes : require

// Vectors of 4 channels that a lane has: head_dim / 32, rounded up to a power of two.
layout(constant_id = 0) const uint kColumns = 1;
const uint kMaxVectors = kMaxChannels / 32u;

// A row of a page's keys or values as vectors: 0 beyond the head's end.
vec4 row_vector(Words page, uint row, uint head_dim, uint vector) {
    if (4u * vector >= head_dim) return vec4(0.0);
    const uint at = row * (head_dim / 2u) + 2u * vector;
    return bf16x4(uvec2(page.v[at], page.v[at + 1u]));
}
vec4 query_vector(uvec2 q, uint row, uint head_dim, uint vector) {
    if (4u * vector >= head_dim) return vec4(0.0);
    return Vectors(q).v[row * (head_dim / 4u) + vector];
}

#endif
