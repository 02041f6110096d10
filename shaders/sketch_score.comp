#version 460
// Computes: page_score of sketches (sketch_estimate of lib/ops/sketch.h).
// Shapes: as in PageScoreArgs; head_dim is even. Launch: a team of kTeamLanes lanes for each page, of which each has
// two tokens, reads a sketch once for kHeads heads of the group; x: pages, y: KV heads and parts of their groups.
// Numerics: products of codes are whole numbers in f32, so exact; the log-sum-exp is f32.
#extension GL_GOOGLE_include_directive : require
#include "common/keys.glsl"
#include "common/pages.glsl"
#include "common/sketch.glsl"
#include "common/unpack.glsl"
#include "pages.h"

layout(push_constant, std430) uniform Push { PageSketchPush a; };
layout(constant_id = 0) const uint kHeads = 1;

const uint kOwnTokens = kPageRows / kTeamLanes;
shared float factors[kMaxColumns], sums[kMaxColumns];
shared vec4 codes[kMaxColumns * kMaxChannels / 4u];  // of the queries, whole numbers

float most_of_team(float x) {
    for (uint i = 1u; i < kTeamLanes; i *= 2u) x = max(x, subgroupShuffleXor(x, i));
    return x;
}
float sum_of_team(float x) {
    for (uint i = 1u; i < kTeamLanes; i *= 2u) x += subgroupShuffleXor(x, i);
    return x;
}

// Codes, factors and sums of the heads from `first` on.
void sketch_queries(uint first, uint n_heads) {
    const uint d = a.head_dim, n = sketch_words(d) * kSketchChannels;
    for (uint i = gl_LocalInvocationID.x; i < kHeads * d; i += kInvocations)
        sketch_rows[i] = Floats(a.q).v[(first + min(i / d, n_heads - 1u)) * d + i % d];
    rotate_rows(kHeads, d);
    const uint lane = invocation() % kTeamLanes, head = invocation() / kTeamLanes;
    float most = 0.0;
    bool is_finite = true;
    for (uint i = lane; i < d; i += kTeamLanes) {
        const float x = head < kHeads ? abs(sketch_rows[head * d + i]) : 0.0;
        most = max(most, x);
        is_finite = is_finite && floatBitsToUint(x) < kInfinity;
    }
    most = most_of_team(most);
    const bool all_finite = sum_of_team(is_finite ? 0.0 : 1.0) == 0.0;
    const float inverse = most > 0.0 ? divided(127.0, most) : 0.0;
    const bool has_codes = all_finite && inverse > 0.0 && floatBitsToUint(inverse) < kInfinity;
    float sum = 0.0;
    for (uint i = lane; i < n / 4u; i += kTeamLanes) {
        vec4 four = vec4(0.0);
        for (uint k = 0u; k < 4u; ++k) {
            const uint channel = 4u * i + k;
            if (head < kHeads && has_codes && channel < d) {
                precise float x = sketch_rows[head * d + channel] * inverse;
                four[k] = roundEven(x);
            }
        }
        sum += four.x + four.y + four.z + four.w;
        if (head < kHeads) codes[head * (n / 4u) + i] = four;
    }
    sum = sum_of_team(sum);
    if (head < kHeads && lane == 0u) {
        sums[head] = sum;
        factors[head] = all_finite ? divided(most, 127.0) : uintBitsToFloat(0x7FC00000u);
    }
    barrier();
}

void main() {
    const uint group = a.n_heads / a.n_kv_heads, n_parts = (group + kHeads - 1u) / kHeads;
    const uint stream = gl_WorkGroupID.y / n_parts, first_head = gl_WorkGroupID.y % n_parts * kHeads;
    const uint n = Words(a.n_pages).v[stream], table = stream * a.capacity;
    if (gl_WorkGroupID.x * kScorePages >= n) return;  // the same for the whole workgroup
    sketch_queries(stream * group + first_head, min(kHeads, group - first_head));
    const uint lane = invocation() % kTeamLanes, n_words = sketch_words(a.head_dim);
    for (uint page = gl_WorkGroupID.x * kScorePages; page < n; page += gl_NumWorkGroups.x * kScorePages) {
        const uint row = page + invocation() / kTeamLanes, at = table + min(row, n - 1u);
        const uint index = is_null(a.slots) ? at : Words(a.slots).v[at];
        Words sketch = Words(plus(a.digests, index, 4u * (n_words * kPageRows + kPageRows / 2u)));
        float product[kMaxColumns][kOwnTokens];
        for (uint h = 0u; h < kHeads; ++h) {
            for (uint t = 0u; t < kOwnTokens; ++t) product[h][t] = 0.0;
        }
        for (uint w = 0u; w < n_words; ++w) {
            for (uint t = 0u; t < kOwnTokens; ++t) {
                const uint word = sketch.v[w * kPageRows + t * kTeamLanes + lane];
                for (uint j = 0u; j < 4u; ++j) {
                    const vec4 four = vec4(bytes_of(word, 2u * j, 3u));
                    for (uint h = 0u; h < kHeads; ++h)
                        product[h][t] += dot(four, codes[(h * n_words + w) * 4u + j]);
                }
            }
        }
        uint scales[kOwnTokens];
        bool is_infinite = false, is_lost = false;
        for (uint t = 0u; t < kOwnTokens; ++t) {
            const uint token = t * kTeamLanes + lane;
            scales[t] = sketch.v[n_words * kPageRows + token / 2u] >> token % 2u * 16u & 0xFFFFu;
            is_infinite = is_infinite || scales[t] == kSketchInfinite;
            is_lost = is_lost || (scales[t] & 0x7FFFu) > kSketchInfinite;
        }
        const float special = most_of_team(is_lost ? 2.0 : is_infinite ? 1.0 : 0.0);
        const bool is_scored = row + 1u < n || Words(a.len).v[at] == kPageRows;
        for (uint h = 0u; h < kHeads; ++h) {
            float logit[kOwnTokens], most = uintBitsToFloat(kMinusInfinity), sum = 0.0;
            for (uint t = 0u; t < kOwnTokens; ++t) {
                logit[t] = (2.0 * product[h][t] - 3.0 * sums[h]) * (factors[h] * a.scale) * bf16_of(scales[t]);
                most = max(most, logit[t]);
            }
            most = most_of_team(most);
            for (uint t = 0u; t < kOwnTokens; ++t) sum += exp(logit[t] - most);
            float score = (most + log(sum_of_team(sum))) / a.scale;
            if (score > kSketchMost) score = kSketchMost;
            if (special == 1.0) score = kSketchMost;
            if (special == 2.0) score = uintBitsToFloat(0x7FC00000u);
            if (lane == 0u && row < n && first_head + h < group)
                Floats(a.score).v[(stream * group + first_head + h) * a.capacity + row] =
                    is_scored ? score : uintBitsToFloat(kMinusInfinity);
        }
    }
}
