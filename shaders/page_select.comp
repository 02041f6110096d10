#version 460
// Computes: page_select (lib/ops/page_select_ref.cpp).
// Shapes: as in PageSelectArgs. Launch: a workgroup for each list; with kAggQHead that of a group's first head makes
// the group's scores as well.
// Numerics: means over heads and maxima as the reference; softmax sums in f32, means of estimates as sums of two
// floats, so that estimates far from zero lose nothing. The choice is exact.
#extension GL_GOOGLE_include_directive : require
#include "common/exact.glsl"
#include "common/top_rows.glsl"
#include "pages.h"

layout(push_constant, std430) uniform Push { PageSelectPush a; };

// Of the list: its stream's pages and tables, and where in which array its scores are.
uint n, table, list_first, ranking_first;
bool is_own;

bool competes(uint row) { return a.candidate_flags == 0u || (Words(a.flags).v[table + row] & a.candidate_flags) != 0u; }
bool is_forced(uint row) {
    return row + 1u == n || row < a.n_sink_pages || (Words(a.flags).v[table + row] & kFlagKept) != 0u;
}
bool is_scored(uint row) { return row + 1u < n && competes(row); }

uint key_of(uint row) {
    if (!competes(row) || is_forced(row)) return kKeyAlways;
    return ordered_key(is_own ? Floats(a.score).v[ranking_first + row] : Floats(a.group_score).v[ranking_first + row]);
}
void take(uint row, uint key, uint place) { OutWords(a.select).v[list_first + place] = row; }

bool has_estimate(float x) { return floatBitsToUint(number(x)) != kMinusInfinity; }

float scaled(float score) {
    precise float x = a.scale * number(score);
    return x;
}

// Maximum and log of the sum of a head's softmax, in x and y.
vec2 softmax_of(uint head) {
    uint most = kKeyNever;
    for (uint row = invocation(); row < n; row += kInvocations) {
        if (is_scored(row)) most = max(most, ordered_key(scaled(Floats(a.score).v[head + row])));
    }
    const uint key = workgroup_most(most);
    const float high = key == kKeyNever ? uintBitsToFloat(kMinusInfinity) : float_of_key(key);
    const bool has_any = has_estimate(high);
    float own = 0.0;
    for (uint row = invocation(); has_any && row < n; row += kInvocations) {
        if (is_scored(row)) own += exp_near(scaled(Floats(a.score).v[head + row]) - high);
    }
    const float sum = workgroup_sum(own);
    return vec2(high, has_any ? log_near(sum) : 0.0);
}

float log_probability(float score, vec2 head) {
    if (!has_estimate(head.x)) return uintBitsToFloat(kMinusInfinity);
    precise float x = scaled(score) - (head.x + head.y);
    return x;
}

shared vec2 pair_parts[kMostSubgroups];

vec2 workgroup_pair(vec2 own) {
    for (uint i = 1u; i < gl_SubgroupSize; i *= 2u)
        own = add_pairs(own, vec2(subgroupShuffleXor(own.x, i), subgroupShuffleXor(own.y, i)));
    barrier();  // the pairs of a call before may still be read
    if (gl_SubgroupInvocationID == 0u) pair_parts[gl_SubgroupID] = own;
    barrier();
    vec2 sum = vec2(0.0);
    for (uint i = 0u; i < gl_NumSubgroups; ++i) sum = add_pairs(sum, pair_parts[i]);
    return sum;
}

// Mean of a head's estimates as two floats, and their standard deviation; 0 if all are equal.
vec3 moments_of(uint head) {
    vec2 own = vec2(0.0);
    uvec3 own_range = uvec3(0xFFFFFFFFu, 0u, 0u);
    for (uint row = invocation(); row < n; row += kInvocations) {
        const float x = Floats(a.score).v[head + row];
        if (!is_scored(row) || !has_estimate(x)) continue;
        const uint key = ordered_key(x);
        own = add_pairs(own, vec2(x, 0.0));
        own_range = uvec3(min(own_range.x, key), max(own_range.y, key), own_range.z + 1u);
    }
    const vec2 sum = workgroup_pair(own);
    const uvec3 range = workgroup_range(own_range);
    const float count = float(range.z);
    precise float mean = quotient(sum.x, count);
    const vec2 product = two_product(mean, count);
    precise float rest = ((sum.x - product.x) - product.y + sum.y) / count;
    float square = 0.0;
    for (uint row = invocation(); row < n; row += kInvocations) {
        const float x = Floats(a.score).v[head + row];
        if (!is_scored(row) || !has_estimate(x)) continue;
        precise float away = (x - mean) - rest;
        square += away * away;
    }
    const float variance = workgroup_sum(square) / count;
    return vec3(mean, rest, range.x < range.y && variance > 0.0 ? sqrt(variance) : 0.0);
}

float deviation(float score, vec3 head) {
    if (!has_estimate(score)) return uintBitsToFloat(kMinusInfinity);
    precise float away = (score - head.x) - head.y;
    return head.z > 0.0 ? away / head.z : 0.0;
}

float larger(float x, float y) { return x < y ? y : x; }

float log_sum(float x, float y) {
    const float more = larger(x, y), less = y < x ? y : x;
    return has_estimate(less) ? more + log1p_near(exp_near(less - more)) : more;
}

// Head by head: between the heads group_score has what the heads so far come to.
void score_group(uint stream) {
    const uint group = a.n_heads / a.n_kv_heads;
    const bool is_prob = a.agg == kAggSumProb || a.agg == kAggMaxProb;
    const bool is_mean = a.agg == kAggMeanRaw || a.agg == kAggQHead;
    Floats total = Floats(a.group_score);
    for (uint g = 0u; g < group; ++g) {
        const uint head = (stream * group + g) * a.capacity;
        vec2 softmax = vec2(0.0);
        vec3 moments = vec3(0.0);
        if (is_prob) softmax = softmax_of(head);
        if (a.agg == kAggMaxZ) moments = moments_of(head);
        for (uint row = invocation(); row < n; row += kInvocations) {
            const float score = Floats(a.score).v[head + row], before = total.v[table + row];
            precise float x = number(score);
            if (is_prob) x = log_probability(score, softmax);
            if (a.agg == kAggMaxZ) x = deviation(score, moments);
            if (g > 0u) x = a.agg == kAggSumProb ? log_sum(before, x) : is_mean ? before + x : larger(before, x);
            if (is_mean && g + 1u == group) x = quotient(x, float(group));
            total.v[table + row] = is_scored(row) ? x : 0.0;
        }
    }
}

void main() {
    const uint list = gl_WorkGroupID.x, group = a.n_heads / a.n_kv_heads;
    is_own = a.agg == kAggQHead;
    const uint stream = is_own ? list / group : list;
    n = Words(a.n_pages).v[stream];
    table = stream * a.capacity;
    list_first = ranking_first = list * a.capacity;
    if (!is_own || list % group == 0u) score_group(stream);
    uint n_forced = 0u;
    for (uint row = invocation(); row < n; row += kInvocations) {
        if (competes(row) && is_forced(row)) ++n_forced;
    }
    n_forced = workgroup_count(n_forced);
    const uint n_taken = take_rows(n, find_threshold(n, a.budget - min(a.budget, n_forced)));
    if (invocation() == 0u) OutWords(a.n_select).v[list] = n_taken;
}
