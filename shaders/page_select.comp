#version 460
// Computes: page_select (lib/ops/page_select_ref.cpp).
// Shapes: as in PageSelectArgs. Launch: a workgroup for each list; with kAggQHead that of a group's first head makes
// the group's scores as well.
// Numerics: means over heads and maxima as the reference; softmax sums in f32, means of estimates as sums of two
// floats, so that estimates far from zero lose nothing. The choice is exact.
#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#include "common/exact.glsl"
#include "common/top_rows.glsl"
#include "pages.h"
#if WEIR_AGG_MODES != 6
#error "page_select: other aggregations"
#endif

layout(push_constant, std430) uniform Push { PageSelectPush a; };
// A constant, so that a pipeline has the code of one mode: what does not fit the caches of instructions is loaded again
// in each layer.
layout(constant_id = 5) const uint kAgg = 0;

// Heads whose scores are loaded at once, as many as a vector has components; and the first rows, whose loads do not
// wait for the number of rows in use.
const uint kHeads = 4u, kRowsAhead = 4u;

// The list: its stream's pages and tables, and where its scores and its rows are.
uint n, group, stream, table, list_first;
bool is_own;

// The block that was read last: a bit for each row, and the scores of some heads.
uint competing, forced, scored;
float score[kHeads][kOwnRows];
float total[kOwnRows];

bool competes(uint flag) { return a.candidate_flags == 0u || (flag & a.candidate_flags) != 0u; }
bool is_forced(uint row, uint flag) { return row + 1u == n || row < a.n_sink_pages || (flag & kFlagKept) != 0u; }
bool has(uint rows, uint i) { return (rows >> i & 1u) != 0u; }

uint key_of(uint row) {
    const uint flag = Words(a.flags).v[table + row];
    const float x = is_own ? Floats(a.score).v[list_first + row] : Floats(a.group_score).v[list_first + row];
    return competes(flag) && !is_forced(row, flag) ? ordered_key(x) : kKeyAlways;
}
void take(uint row, uint key, uint place) { OutWords(a.select).v[list_first + place] = row; }

// Nothing between the loads needs one of them but those of rows beyond kRowsAhead, which need n.
void read_block(uint first, uint head) {
    uint flag[kOwnRows];
    [[unroll]] for (uint i = 0u; i < kOwnRows; ++i) {
        if (i < kRowsAhead || first + i * kThreads < n) {
            const uint row = min(own_row(first, i), a.capacity - 1u);
            flag[i] = Words(a.flags).v[table + row];
            [[unroll]] for (uint h = 0u; h < kHeads; ++h)
                score[h][i] = Floats(a.score).v[(stream * group + min(head + h, group - 1u)) * a.capacity + row];
        } else {
            flag[i] = 0u;
            [[unroll]] for (uint h = 0u; h < kHeads; ++h) score[h][i] = 0.0;
        }
    }
    competing = forced = scored = 0u;
    [[unroll]] for (uint i = 0u; i < kOwnRows; ++i) {
        const uint row = own_row(first, i), bit = row < n ? 1u << i : 0u;
        if (competes(flag[i])) competing |= bit;
        if (is_forced(row, flag[i])) forced |= bit;
        if (competes(flag[i]) && row + 1u < n) scored |= bit;
    }
}

// Moves the heads' scores and statistics one place down: loops over heads with much code work on the first of them, so
// that the code stands there once and not once for each.
uvec4 next_head(uvec4 x) { return x.yzwx; }
vec4 next_head(vec4 x) { return x.yzwx; }
void next_scores() {
    [[unroll]] for (uint i = 0u; i < kOwnRows; ++i) {
        const float first = score[0][i];
        [[unroll]] for (uint h = 1u; h < kHeads; ++h) score[h - 1u][i] = score[h][i];
        score[kHeads - 1u][i] = first;
    }
}

bool has_estimate(float x) { return floatBitsToUint(number(x)) != kMinusInfinity; }

float scaled(float x) {
    precise float logit = a.scale * number(x);
    return logit;
}

// Statistics of the heads at once. Softmax: `center` is the maximum, `rest` the log of the sum. Moments: the estimates'
// mean as two floats, and their standard deviation, 0 if all are equal.
struct Stats {
    vec4 center, rest, deviation;
};

shared uvec4 head_most[kMaxParts], head_least[kMaxParts], head_count[kMaxParts];
shared vec4 head_sums[kMaxParts], pair_sums[kMaxParts], pair_lows[kMaxParts];

vec4 sum_of_heads(vec4 own) {
    const vec4 part = subgroupAdd(own);
    barrier();  // the sums of a call before may still be read
    if (gl_SubgroupInvocationID == 0u) head_sums[gl_SubgroupID] = part;
    barrier();
    vec4 sum = vec4(0.0);
    for (uint i = 0u; i < gl_NumSubgroups; i += gl_SubgroupSize) {
        if (i + gl_SubgroupInvocationID < gl_NumSubgroups) sum += head_sums[i + gl_SubgroupInvocationID];
    }
    return subgroupAdd(sum);
}

struct Range {
    uvec4 least, most, count;
};

Range range_of_heads(Range own) {
    const uvec4 most = subgroupMax(own.most), least = subgroupMin(own.least), count = subgroupAdd(own.count);
    barrier();  // what a call before left may still be read
    if (gl_SubgroupInvocationID == 0u) {
        head_most[gl_SubgroupID] = most;
        head_least[gl_SubgroupID] = least;
        head_count[gl_SubgroupID] = count;
    }
    barrier();
    Range all = Range(uvec4(kKeyAlways), uvec4(kKeyNever), uvec4(0u));
    for (uint i = 0u; i < gl_NumSubgroups; i += gl_SubgroupSize) {
        const uint at = i + gl_SubgroupInvocationID;
        if (at < gl_NumSubgroups)
            all = Range(min(all.least, head_least[at]), max(all.most, head_most[at]), all.count + head_count[at]);
    }
    return Range(subgroupMin(all.least), subgroupMax(all.most), subgroupAdd(all.count));
}

Stats softmax_of(uint head) {
    Range own = Range(uvec4(0u), uvec4(kKeyNever), uvec4(0u));
    for (uint first = 0u; has_block(first, n); first += kBlockRows) {
        if (is_long(n)) read_block(first, head);
        [[dont_unroll]] for (uint h = 0u; h < kHeads; ++h) {
            [[unroll]] for (uint i = 0u; i < kOwnRows; ++i)
                own.most.x = max(own.most.x, has(scored, i) ? ordered_key(scaled(score[0][i])) : kKeyNever);
            own.most = next_head(own.most);
            next_scores();
        }
    }
    const uvec4 most = range_of_heads(own).most;
    Stats s = Stats(vec4(0.0), vec4(0.0), vec4(0.0));
    [[unroll]] for (uint h = 0u; h < kHeads; ++h)
        s.center[h] = most[h] == kKeyNever ? uintBitsToFloat(kMinusInfinity) : float_of_key(most[h]);
    vec4 part = vec4(0.0);
    for (uint first = 0u; has_block(first, n); first += kBlockRows) {
        if (is_long(n)) read_block(first, head);
        [[dont_unroll]] for (uint h = 0u; h < kHeads; ++h) {
            const bool has_any = has_estimate(s.center.x);
            [[unroll]] for (uint i = 0u; i < kOwnRows; ++i)
                part.x += has_any && has(scored, i) ? exp_near(scaled(score[0][i]) - s.center.x) : 0.0;
            part = next_head(part);
            s.center = next_head(s.center);
            next_scores();
        }
    }
    const vec4 sum = sum_of_heads(part);
    [[unroll]] for (uint h = 0u; h < kHeads; ++h) s.rest[h] = has_estimate(s.center[h]) ? log_near(sum[h]) : 0.0;
    return s;
}

// By the statistics of the first head.
float log_probability(float x, Stats s) {
    precise float log_p = scaled(x) - (s.center.x + s.rest.x);
    return has_estimate(s.center.x) ? log_p : uintBitsToFloat(kMinusInfinity);
}

// Sums pairs, sum[h] and low[h], over the subgroup.
void sum_of_lanes(inout vec4 sum, inout vec4 low) {
    for (uint i = 1u; i < gl_SubgroupSize; i *= 2u) {
        [[unroll]] for (uint h = 0u; h < kHeads; ++h) {
            const vec2 other = vec2(subgroupShuffleXor(sum[h], i), subgroupShuffleXor(low[h], i));
            const vec2 pair = add_pairs(vec2(sum[h], low[h]), other);
            sum[h] = pair.x;
            low[h] = pair.y;
        }
    }
}

Stats moments_of(uint head) {
    vec4 sum = vec4(0.0), low = vec4(0.0);
    Range own = Range(uvec4(kKeyAlways), uvec4(kKeyNever), uvec4(0u));
    for (uint first = 0u; has_block(first, n); first += kBlockRows) {
        if (is_long(n)) read_block(first, head);
        [[dont_unroll]] for (uint h = 0u; h < kHeads; ++h) {
            vec2 pair = vec2(sum.x, low.x);
            [[unroll]] for (uint i = 0u; i < kOwnRows; ++i) {
                const float x = score[0][i];
                const bool counts = has(scored, i) && has_estimate(x);
                const uint key = ordered_key(x);
                pair = add_pairs(pair, vec2(counts ? x : 0.0, 0.0));
                own.least.x = min(own.least.x, counts ? key : kKeyAlways);
                own.most.x = max(own.most.x, counts ? key : kKeyNever);
                own.count.x += counts ? 1u : 0u;
            }
            sum.x = pair.x;
            low.x = pair.y;
            sum = next_head(sum);
            low = next_head(low);
            own = Range(next_head(own.least), next_head(own.most), next_head(own.count));
            next_scores();
        }
    }
    sum_of_lanes(sum, low);
    if (gl_SubgroupInvocationID == 0u) {
        pair_sums[gl_SubgroupID] = sum;
        pair_lows[gl_SubgroupID] = low;
    }
    const Range range = range_of_heads(own);
    sum = low = vec4(0.0);
    for (uint i = 0u; i < gl_NumSubgroups; i += gl_SubgroupSize) {
        const uint at = i + gl_SubgroupInvocationID;
        if (at < gl_NumSubgroups) {
            [[unroll]] for (uint h = 0u; h < kHeads; ++h) {
                const vec2 pair = add_pairs(vec2(sum[h], low[h]), vec2(pair_sums[at][h], pair_lows[at][h]));
                sum[h] = pair.x;
                low[h] = pair.y;
            }
        }
    }
    sum_of_lanes(sum, low);
    Stats s = Stats(vec4(0.0), vec4(0.0), vec4(0.0));
    [[unroll]] for (uint h = 0u; h < kHeads; ++h) {
        const float count = float(range.count[h]);
        precise float mean = quotient(sum[h], count);
        const vec2 product = two_product(mean, count);
        precise float rest = ((sum[h] - product.x) - product.y + low[h]) / count;
        s.center[h] = mean;
        s.rest[h] = rest;
    }
    vec4 square = vec4(0.0);
    for (uint first = 0u; has_block(first, n); first += kBlockRows) {
        if (is_long(n)) read_block(first, head);
        [[unroll]] for (uint h = 0u; h < kHeads; ++h) {
            [[unroll]] for (uint i = 0u; i < kOwnRows; ++i) {
                precise float away = (score[h][i] - s.center[h]) - s.rest[h];
                square[h] += has(scored, i) && has_estimate(score[h][i]) ? away * away : 0.0;
            }
        }
    }
    const vec4 squares = sum_of_heads(square);
    [[unroll]] for (uint h = 0u; h < kHeads; ++h) {
        const float variance = squares[h] / float(range.count[h]);
        s.deviation[h] = range.least[h] < range.most[h] && variance > 0.0 ? sqrt(variance) : 0.0;
    }
    return s;
}

// By the statistics of the first head.
float deviation(float x, Stats s) {
    if (!has_estimate(x)) return uintBitsToFloat(kMinusInfinity);
    precise float away = (x - s.center.x) - s.rest.x;
    return s.deviation.x > 0.0 ? away / s.deviation.x : 0.0;
}

float larger(float x, float y) { return x < y ? y : x; }

float log_sum(float x, float y) {
    const float more = larger(x, y), less = y < x ? y : x;
    return has_estimate(less) ? more + log1p_near(exp_near(less - more)) : more;
}

// Continues `total` by the heads from `head` on; the first head of the group begins it.
void join_estimates(uint head) {
    const bool is_mean = kAgg != kAggMaxRaw;
    [[unroll]] for (uint h = 0u; h < kHeads; ++h) {
        if (head + h < group) {
            [[unroll]] for (uint i = 0u; i < kOwnRows; ++i) {
                const float x = number(score[h][i]);
                precise float sum = total[i] + x;
                total[i] = head + h == 0u ? x : is_mean ? sum : larger(total[i], x);
            }
        }
    }
}

void join_statistics(uint head, Stats s) {
    const uint end = min(head + kHeads, group);
    [[dont_unroll]] for (uint next = head; next < end; ++next) {
        [[unroll]] for (uint i = 0u; i < kOwnRows; ++i) {
            const float x = kAgg == kAggMaxZ ? deviation(score[0][i], s) : log_probability(score[0][i], s);
            if (next == 0u) {
                total[i] = x;
            } else {
                total[i] = kAgg == kAggSumProb ? log_sum(total[i], x) : larger(total[i], x);
            }
        }
        s = Stats(next_head(s.center), next_head(s.rest), next_head(s.deviation));
        next_scores();
    }
}

// The group's scores. If one block has all rows they end in `total` too; otherwise group_score has what the heads so
// far come to.
void score_group() {
    const bool is_prob = kAgg == kAggSumProb || kAgg == kAggMaxProb;
    const bool is_mean = kAgg == kAggMeanRaw || kAgg == kAggQHead;
    Floats out_score = Floats(a.group_score);
    for (uint head = 0u; head < group; head += kHeads) {
        const bool is_last = head + kHeads >= group;
        read_block(0u, head);
        Stats s = Stats(vec4(0.0), vec4(0.0), vec4(0.0));
        if (is_prob) s = softmax_of(head);
        if (kAgg == kAggMaxZ) s = moments_of(head);
        for (uint first = 0u; has_block(first, n); first += kBlockRows) {
            if (is_long(n)) read_block(first, head);
            if (is_long(n) && head > 0u) {
                [[unroll]] for (uint i = 0u; i < kOwnRows; ++i) {
                    if (own_row(first, i) < n) total[i] = out_score.v[table + own_row(first, i)];
                }
            }
            if (is_prob || kAgg == kAggMaxZ) {
                join_statistics(head, s);
            } else {
                join_estimates(head);
            }
            if (is_last && is_mean) {
                [[unroll]] for (uint i = 0u; i < kOwnRows; ++i) total[i] = quotient(total[i], float(group));
            }
            if (is_last || is_long(n)) {
                [[unroll]] for (uint i = 0u; i < kOwnRows; ++i) {
                    if (own_row(first, i) < n) out_score.v[table + own_row(first, i)] = has(scored, i) ? total[i] : 0.0;
                }
            }
        }
    }
}

// How many of the invocation's rows are listed at the expense of the budget.
uint count_forced() {
    uint count = 0u;
    for (uint first = 0u; has_block(first, n); first += kBlockRows) {
        if (is_long(n)) read_block(first, 0u);
        count += uint(bitCount(competing & forced));
    }
    return count;
}

void main() {
    const uint list = gl_WorkGroupID.x;
    group = a.n_heads / a.n_kv_heads;
    is_own = kAgg == kAggQHead;
    stream = is_own ? list / group : list;
    table = stream * a.capacity;
    n = Words(a.n_pages).v[stream];
    list_first = list * a.capacity;
    if (!is_own || list % group == 0u) score_group();
    if (is_own) {
        read_block(0u, list % group);
        [[unroll]] for (uint i = 0u; i < kOwnRows; ++i) total[i] = score[0][i];
    }
    [[unroll]] for (uint i = 0u; i < kOwnRows; ++i) {
        const uint key = has(competing & ~forced, i) ? ordered_key(total[i]) : kKeyAlways;
        own_keys[i] = own_row(0u, i) < n ? key : kKeyNever;
    }
    const uint n_taken = take_rows(n, find_threshold(n, a.budget, count_forced()));
    if (invocation() == 0u) OutWords(a.n_select).v[list] = n_taken;
}
