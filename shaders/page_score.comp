#version 460
// Computes: page_score (lib/ops/page_score_ref.cpp).
// Shapes: as in PageScoreArgs; head_dim is a multiple of 4. Launch: a team of kTeamLanes lanes for each page, which it
// reads once for kHeads heads of the group; x: pages, y: KV heads and parts of their groups.
// Numerics: f32, a lane takes every eighth four channels and the lanes are joined in pairs: the same on every device.
#extension GL_GOOGLE_include_directive : require
#include "common/keys.glsl"
#include "common/unpack.glsl"
#include "pages.h"
#if WEIR_DIGEST_KINDS != 7
#error "page_score: other digests"
#endif

layout(push_constant, std430) uniform Push { PageScorePush a; };
layout(constant_id = 0) const uint kHeads = 1;

vec4 channels(Words digests, uint word) {
    const uint x = digests.v[word], y = digests.v[word + 1u];
    return vec4(bf16_of(x), bf16_of(x >> 16), bf16_of(y), bf16_of(y >> 16));
}

float sum_of_team(float x) {
    for (uint i = 1u; i < kTeamLanes; i *= 2u) x += subgroupShuffleXor(x, i);
    return x;
}

void main() {
    const uint group = a.n_heads / a.n_kv_heads, n_parts = (group + kHeads - 1u) / kHeads;
    const uint stream = gl_WorkGroupID.y / n_parts, first_head = gl_WorkGroupID.y % n_parts * kHeads;
    const uint n = Words(a.n_pages).v[stream], table = stream * a.capacity;
    const uint lane = invocation() % kTeamLanes, half_words = a.head_dim / 2u;
    const bool is_bound = a.digest == kDigestMinMax || a.digest == kDigestCuboidMean;
    const bool has_two = is_bound || a.digest == kDigestMeanStd;
    Vectors q = Vectors(a.q);
    Words digests = Words(a.digests);
    for (uint page = gl_WorkGroupID.x * kScorePages; page < n; page += gl_NumWorkGroups.x * kScorePages) {
        const uint row = page + invocation() / kTeamLanes, at = table + min(row, n - 1u);
        const uint first = (is_null(a.slots) ? at : Words(a.slots).v[at]) * a.digest_words;
        float sum[kMaxColumns], square[kMaxColumns];
        for (uint h = 0u; h < kHeads; ++h) sum[h] = square[h] = 0.0;
        for (uint i = lane; i < a.head_dim / 4u; i += kTeamLanes) {
            const vec4 one = channels(digests, first + 2u * i);
            const vec4 two = has_two ? channels(digests, first + half_words + 2u * i) : vec4(1.0);
            for (uint h = 0u; h < kHeads; ++h) {
                const uint head = stream * group + min(first_head + h, group - 1u);
                const vec4 x = q.v[head * (a.head_dim / 4u) + i];
                const vec4 part = is_bound ? max(x * one, x * two) : x * one, spread = x * two;
                for (uint k = 0u; k < 4u; ++k) {
                    sum[h] += part[k];
                    square[h] += spread[k] * spread[k];
                }
            }
        }
        const bool is_scored = row + 1u < n || a.digest == kDigestMinMax || Words(a.len).v[at] == kPageRows;
        for (uint h = 0u; h < kHeads; ++h) {
            const float dot = sum_of_team(sum[h]), far = sqrt(sum_of_team(square[h]));
            float score = dot;
            if (a.digest == kDigestSphereMean) score += bf16_of(digests.v[first + half_words] & 0xFFFFu) * far;
            if (a.digest == kDigestMeanStd) score += a.spread * far;
            if (lane == 0u && row < n && first_head + h < group)
                Floats(a.score).v[(stream * group + first_head + h) * a.capacity + row] =
                    is_scored ? score : uintBitsToFloat(kMinusInfinity);
        }
    }
}
