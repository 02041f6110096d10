// What the kernels that attend KV pages share: teams of 8 lanes, each with a query row of one head, whose channels
// 32 i + 4 lane .. + 3 a lane has; and which tokens a row sees.
#ifndef WEIR_ATTEND_GLSL
#define WEIR_ATTEND_GLSL
#include "common/math.glsl"
#include "common/pages.glsl"
#include "common/subgroup.glsl"
#extension GL_EXT_control_flow_attributes : require

// Vectors of 4 channels that a lane has: head_dim / 32, rounded up to a power of two.
layout(constant_id = 0) const uint kColumns = 1;
const uint kMostVectors = kMostChannels / 32u;
const uint kTeams = kInvocations / kTeamLanes;
#define kUnseen uintBitsToFloat(0xFF800000u)  // -inf; no constant, because a function of GLSL makes it

uint team() { return gl_SubgroupID * (gl_SubgroupSize / kTeamLanes) + gl_SubgroupInvocationID / kTeamLanes; }
uint team_lane() { return gl_SubgroupInvocationID % kTeamLanes; }

float team_max(float x) {
    x = max(x, subgroupShuffleXor(x, 4u));
    x = max(x, subgroupShuffleXor(x, 2u));
    return max(x, subgroupShuffleXor(x, 1u));
}
float team_sum(float x) {
    x += subgroupShuffleXor(x, 4u);
    x += subgroupShuffleXor(x, 2u);
    return x + subgroupShuffleXor(x, 1u);
}

float soft_capped(float logit, float cap) { return cap == 0.0 ? logit : cap * tanh_near(logit / cap); }

// The tokens that a row sees: those up to its own, of them the ones from `begin` on and those before `n_sink`.
struct Sight {
    uint pos, begin, n_sink;
};
Sight sight_of(uint pos, uint window, uint n_sink) {
    return Sight(pos, window != 0u && pos >= window ? pos - window + 1u : 0u, n_sink);
}
bool sees(Sight s, uint token) { return token <= s.pos && (token >= s.begin || token < s.n_sink); }

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
