#version 460
// Computes: compensation tokens, merged into what attention gave (lib/device/kernels.h, CompensateArgs): result, lse
// and page_mass of the KV heads with windows of their own.
// Shapes: result and q [n_tok, n_heads, head_dim], lse [n_tok, n_heads], page_mass [n_heads, capacity] of the last row.
// Launch: a workgroup for each KV head (x) and kCompensateRows rows (y). Each begins with what has left the stream and
// adds the tokens of the table that its rows do not see, in order.
// Numerics: f32.
// Paper: Tang et al., RazorAttention, arXiv:2407.15891, sec. 3.
#extension GL_GOOGLE_include_directive : require
#include "common/pages.glsl"
#include "common/team.glsl"
#include "pages.h"

layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Arguments { CompensatePush a; };
layout(push_constant) uniform Push { Arguments p; };

shared float sums[2u * kMaxChannels];
shared float of_seen[kTeams], of_mean[kTeams], new_lse[kTeams];

// The next token of the table is `next_token` of `next_row`; so many tokens are in the sums.
uint next_row, next_token, n_added;

// Adds the tokens at positions below `end`, but no sinks. Each invocation adds some words of two channels.
void add_until(uint table, uint n_pages, uint end) {
    const uint d = p.a.head_dim;
    for (; next_row < n_pages; ++next_row, next_token = 0u) {
        const uint first_pos = Words(p.a.first_pos).v[table + next_row], len = Words(p.a.len).v[table + next_row];
        if (next_token >= len) continue;
        if (first_pos + next_token >= end) return;
        const uint last = min(len, end - first_pos);
        const uint first = max(next_token, p.a.head_sinks > first_pos ? p.a.head_sinks - first_pos : 0u);
        const uvec2 page = page_at(p.a.pool, Words(p.a.slots).v[table + next_row], d);
        for (uint w = gl_LocalInvocationIndex; w < d; w += kThreads) {
            const uint column = w < d / 2u ? w : kPageRows * (d / 2u) + (w - d / 2u);
            precise float low = sums[2u * w], high = sums[2u * w + 1u];
            for (uint token = first; token < last; ++token) {
                const uint word = Words(page).v[token * (d / 2u) + column];
                low += low_bf16(word);
                high += high_bf16(word);
            }
            sums[2u * w] = low;
            sums[2u * w + 1u] = high;
        }
        n_added += first < last ? last - first : 0u;
        next_token = last;
        if (last < len) return;
    }
}

// What the seen tokens and the mean of the others have of each head's weight, by a team for each of n heads from the
// head `first` on.
void weigh(uint first, uint n, uint tok) {
    const uint d = p.a.head_dim, head = first + min(team(), n - 1u), at = tok * p.a.n_heads + head;
    float dot = 0.0;
    for (uint c = team_lane(); c < d; c += kTeamLanes) dot = fma(Floats(p.a.q).v[at * d + c], sums[c], dot);
    const float count = float(n_added), logit = p.a.scale * (team_sum(dot) / count);
    const float weight = soft_capped(logit, p.a.soft_cap) + log_near(count);
    const float lse = Floats(p.a.lse).v[at], high = max(lse, weight);
    const float seen = floatBitsToUint(lse) == 0xFF800000u ? 0.0 : exp_near(lse - high);
    const float mean = exp_near(weight - high), total = seen + mean;
    if (team() >= n || team_lane() != 0u) return;
    of_seen[team()] = seen / total;
    of_mean[team()] = mean / total;
    new_lse[team()] = high + log_near(total);
}

// The rows of n heads from the head `first` on.
void merge(uint first, uint n, uint tok, uint n_pages) {
    const uint d = p.a.head_dim, me = gl_LocalInvocationIndex;
    for (uint i = me; i < n * d; i += kThreads) {
        const uint h = i / d, c = i % d, at = (tok * p.a.n_heads + first + h) * d + c;
        Floats(p.a.result).v[at] = Floats(p.a.result).v[at] * of_seen[h] + sums[d + c] / float(n_added) * of_mean[h];
    }
    if (me < n) Floats(p.a.lse).v[tok * p.a.n_heads + first + me] = new_lse[me];
    if (is_null(p.a.page_mass) || tok + 1u < p.a.n_tok) return;
    for (uint i = me; i < n * n_pages; i += kThreads)
        Floats(p.a.page_mass).v[(first + i / n_pages) * p.a.capacity + i % n_pages] *= of_seen[i / n_pages];
}

void main() {
    const uint kv_head = gl_WorkGroupID.x, group = p.a.n_heads / p.a.n_kv_heads, d = p.a.head_dim;
    const uint window = Words(p.a.head_windows).v[kv_head];
    if (window == 0u) return;
    uint rank = 0u;
    for (uint head = 0u; head < kv_head; ++head) rank += Words(p.a.head_windows).v[head] != 0u ? 1u : 0u;
    const uint table = kv_head * p.a.capacity, n_pages = Words(p.a.n_pages).v[kv_head];
    const uint pos = is_null(p.a.n_tokens) ? p.a.pos : Words(p.a.n_tokens).v[0];
    for (uint w = gl_LocalInvocationIndex; w < d; w += kThreads) {
        sums[2u * w] = Floats(p.a.values).v[rank * 2u * d + 2u * w];
        sums[2u * w + 1u] = Floats(p.a.values).v[rank * 2u * d + 2u * w + 1u];
    }
    next_row = next_token = 0u;
    n_added = Words(p.a.sums).v[2u * rank];
    const uint first = gl_WorkGroupID.y * kCompensateRows;
    for (uint tok = first; tok < min(first + kCompensateRows, p.a.n_tok); ++tok) {
        const uint seen_end = pos + tok + 1u;
        add_until(table, n_pages, seen_end - min(seen_end, window));
        barrier();
        for (uint h = 0u; h < group && n_added != 0u; h += kTeams) {
            const uint n = min(kTeams, group - h), head = kv_head * group + h;
            weigh(head, n, tok);
            barrier();
            merge(head, n, tok, n_pages);
            barrier();
        }
    }
}
