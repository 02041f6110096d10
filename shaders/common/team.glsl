// Teams of 8 lanes, which fit subgroups of any size, for the kernels that attend KV pages; and which tokens a row sees.
#ifndef WEIR_TEAM_GLSL
#define WEIR_TEAM_GLSL
#include "attn.h"
#include "common/math.glsl"
#include "common/subgroup.glsl"

const uint kTeams = kThreads / kTeamLanes;
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

#endif
