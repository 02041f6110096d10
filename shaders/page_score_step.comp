#version 460
// Computes: page_score of kMinMax digests for a query that is neither normalised nor rotated; the last row gets -inf
// (page_score_step of tests/runtime/host_step.cpp).
// Shapes: as in PageScoreStepArgs; head_dim is a multiple of 4. Launch: a team of kTeamLanes lanes for each page, which
// it reads once for kHeads heads of the group; x: pages, y: KV heads and parts of their groups.
// Numerics: f32; norms and rotations as in attn_decode.comp, estimates as in page_score.comp.
#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#include "common/keys.glsl"
#include "common/pages.glsl"
#include "common/rotation.glsl"
#include "common/team.glsl"
#include "common/unpack.glsl"
#include "pages.h"

layout(push_constant, std430) uniform Push { PageScoreStepPush a; };
layout(constant_id = 0) const uint kHeads = 1;
layout(constant_id = 1) const uint kChunks = 1;  // kTeamLanes * kChunks * 4 channels or fewer

layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer PairsOf { uvec2 v[]; };

const uint kVectors = kChunks * kTeamLanes;  // of a head
shared vec4 queries[kHeads * kVectors];
shared float inverse_rms[kHeads];

uint stream, group, first_head, n;

// Heads beyond the group are its last one; their scores are not stored.
uint query_at(uint h) { return (stream * group + min(first_head + h, group - 1u)) * a.head_dim; }

void norm_heads() {
    if (team() < kHeads) {
        const uint first = query_at(team());
        precise float sum = 0.0;
        for (uint c = team_lane(); c < a.head_dim; c += kTeamLanes)
            sum = fma(Floats(a.q).v[first + c], Floats(a.q).v[first + c], sum);
        sum = team_sum(sum);
        if (team_lane() == 0u) inverse_rms[team()] = 1.0 / sqrt(sum / float(a.head_dim) + a.norm_eps);
    }
    barrier();
}

float normed(float x, uint h, uint c) {
    if (is_null(a.q_norm)) return x;
    precise float y = x * inverse_rms[h];
    return y * Floats(a.q_norm).v[c];
}

// Into `queries`; channels beyond head_dim are 0.
void rotate_heads() {
    const uint half_dim = a.rope_dim / 2u, n_pairs = a.head_dim / 2u;
    for (uint i = gl_LocalInvocationID.x; i < kHeads * 2u * kVectors; i += kThreads) {
        const uint h = i / (2u * kVectors), pair = i % (2u * kVectors);
        vec2 x = vec2(0.0);
        uvec2 c = uvec2(2u * pair, 2u * pair + 1u);
        if (pair < n_pairs) {
            c = channels_of(pair, a.rope_dim, a.is_adjacent != 0u);
            const uint first = query_at(h);
            x = vec2(normed(Floats(a.q).v[first + c.x], h, c.x), normed(Floats(a.q).v[first + c.y], h, c.y));
            if (pair < half_dim)
                x = turned(x, vec2(Floats(a.cos_sin).v[2u * pair], Floats(a.cos_sin).v[2u * pair + 1u]));
        }
        queries[h * kVectors + c.x / 4u][c.x % 4u] = x.x;
        queries[h * kVectors + c.y / 4u][c.y % 4u] = x.y;
    }
    barrier();
}

uvec2 high[kChunks], low[kChunks];  // of the lane's channels of its page

// The digest of the team's page. The slot is loaded beside the number of pages.
void load_digest(uint page) {
    const uint row = page + team(), at = stream * a.capacity + min(row, a.capacity - 1u);
    const uint slot = is_null(a.slots) ? at : Words(a.slots).v[at];
    n = Words(a.n_pages).v[stream];
    const uint last = a.head_dim / 4u - 1u, first = (row < n ? slot : 0u) * (a.head_dim / 2u);
    [[unroll]] for (uint k = 0u; k < kChunks; ++k) {
        const uint at_vector = min(team_lane() + k * kTeamLanes, last);
        high[k] = PairsOf(a.digests).v[first + at_vector];
        low[k] = PairsOf(a.digests).v[first + last + 1u + at_vector];
    }
}

vec4 channels(uvec2 words) {
    return vec4(bf16_of(words.x), bf16_of(words.x >> 16), bf16_of(words.y), bf16_of(words.y >> 16));
}

void score_page(uint row) {
    [[unroll]] for (uint h = 0u; h < kHeads; ++h) {
        float sum = 0.0;
        [[unroll]] for (uint k = 0u; k < kChunks; ++k) {
            const vec4 x = queries[h * kVectors + team_lane() + k * kTeamLanes];
            const vec4 part = max(x * channels(high[k]), x * channels(low[k]));
            [[unroll]] for (uint i = 0u; i < 4u; ++i) sum += part[i];
        }
        sum = team_sum(sum);
        if (team_lane() == 0u && row < n && first_head + h < group)
            Floats(a.score).v[(stream * group + first_head + h) * a.capacity + row] =
                row + 1u < n ? sum : uintBitsToFloat(kMinusInfinity);
    }
}

void main() {
    group = a.n_heads / a.n_kv_heads;
    const uint n_parts = (group + kHeads - 1u) / kHeads, page = gl_WorkGroupID.x * kScorePages;
    stream = gl_WorkGroupID.y / n_parts;
    first_head = gl_WorkGroupID.y % n_parts * kHeads;
    load_digest(page);
    if (page >= n) return;  // the same for the whole workgroup
    if (!is_null(a.q_norm)) norm_heads();
    rotate_heads();
    score_page(page + team());
}
