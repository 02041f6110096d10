#version 460
// Computes: attention over listed pages with a running softmax (lib/ops/attn_paged_ref.cpp), whole, in parts that
// follow each other, or for one row in units whose results attn_merge.comp merges.
// Shapes: AttnArgs says them. The pairs of a list are its heads for each row of q: pair p is head p % n of row p / n.
// Launch: a workgroup for each kPairs pairs, and in units for each unit, along x; a list along y. A team has
// kTeamPairs pairs; keys and values of a page pass through shared memory as bf16.
// Numerics: f32. A row has the same bits whatever other rows there are, and wherever pages lie. Tokens that no row of
// the workgroup sees are not read.
#extension GL_GOOGLE_include_directive : require
#include "common/attend.glsl"

layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Arguments { AttnArgs a; };
layout(push_constant) uniform Push { Arguments p; };

const uint kTeamPairs = 2u;
const uint kPairs = kTeams * kTeamPairs;
const uint kRoundPages = kInvocations;  // listed pages whose tables are read at once
const uint kRowVectors = 8u * kColumns;
const uint kTokens = kPageRows / kTeamLanes;  // of a page, whose logits a lane has

shared uvec2 keys[kPageRows * kMaxChannels / 4u];
shared uvec2 values[kPageRows * kMaxChannels / 4u];
// The round's pages: position, tokens (0: none is seen), slot and table row.
shared uint first_pos[kRoundPages], len[kRoundPages], slot[kRoundPages], table_row[kRoundPages];

// What this team's rows have seen.
vec4 q[kTeamPairs][kColumns], sums[kTeamPairs][kColumns];
float high[kTeamPairs], sum[kTeamPairs];
Sight sight[kTeamPairs];
uint row_of_q[kTeamPairs], head_of[kTeamPairs];
bool is_there[kTeamPairs];

uint list, kv_head, first_pair, n_pairs, group;
uint window, n_sink;
uint low_pos, high_pos;  // of the workgroup's rows

void read_queries(uvec2 from) {
    [[unroll]] for (uint r = 0u; r < kTeamPairs; ++r) {
        [[unroll]] for (uint c = 0u; c < kColumns; ++c)
            q[r][c] = query_vector(from, row_of_q[r], p.a.head_dim, 8u * c + team_lane());
    }
}

void read_pairs() {
    low_pos = p.a.pos + first_pair / group;
    high_pos = p.a.pos + (min(first_pair + kPairs, n_pairs) - 1u) / group;
    [[unroll]] for (uint r = 0u; r < kTeamPairs; ++r) {
        const uint pair = first_pair + r * kTeams + team();
        is_there[r] = pair < n_pairs;
        const uint known = is_there[r] ? pair : first_pair, tok = known / group;
        head_of[r] = list * group + known % group;
        row_of_q[r] = tok * p.a.n_heads + head_of[r];
        sight[r] = sight_of(p.a.pos + tok, window, n_sink);
        high[r] = kUnseen;
        sum[r] = 0.0;
        if (p.a.continues != 0u) {
            high[r] = Floats(p.a.high).v[row_of_q[r]];
            sum[r] = Floats(p.a.sum).v[row_of_q[r]];
        }
        [[unroll]] for (uint c = 0u; c < kColumns; ++c) {
            const uint vector = 8u * c + team_lane();
            sums[r][c] = vec4(0.0);
            if (p.a.continues != 0u) sums[r][c] = query_vector(p.a.result, row_of_q[r], p.a.head_dim, vector);
        }
    }
    read_queries(p.a.q);
}

// Whether any of the workgroup's rows may see a token.
bool any_sees(uint token) {
    if (token > high_pos) return false;
    return window == 0u || token < n_sink || token + window > low_pos;
}

// Tables of the listed pages [first, first + n).
void read_tables(uint first, uint n) {
    barrier();  // those before are still read
    const uint i = gl_LocalInvocationID.x;
    if (i < n) {
        const uint at = list * p.a.capacity + first + i;
        const uint row = is_null(p.a.select) ? first + i : Words(p.a.select).v[at];
        const uint table = kv_head * p.a.capacity + row;
        const uint begin = Words(p.a.first_pos).v[table], size = Words(p.a.len).v[table];
        const bool is_seen =
            size != 0u && begin <= high_pos && (begin < n_sink || any_sees(min(begin + size - 1u, high_pos)));
        first_pos[i] = begin;
        len[i] = is_seen ? size : 0u;
        slot[i] = Words(p.a.slots).v[table];
        table_row[i] = row;
    }
    barrier();
}

// A page's keys and values; 0 for those that no row sees.
void stage_page(uint i) {
    Quads page = Quads(page_at(p.a.pool, slot[i], p.a.head_dim));
    const uint row_quads = p.a.head_dim / 8u, shared_quads = kRowVectors / 2u;
    barrier();  // the page before is still read
    for (uint at = gl_LocalInvocationID.x; at < 2u * kPageRows * shared_quads; at += kInvocations) {
        const uint row = at / shared_quads, x = at % shared_quads, token = row % kPageRows;
        uvec4 quad = uvec4(0u);
        if (x < row_quads && token < len[i] && any_sees(first_pos[i] + token)) quad = page.v[row * row_quads + x];
        const uint to = token * kRowVectors + 2u * x;
        if (row < kPageRows) {
            keys[to] = quad.xy;
            keys[to + 1u] = quad.zw;
        } else {
            values[to] = quad.xy;
            values[to + 1u] = quad.zw;
        }
    }
    barrier();
}

// Tokens at the front of a page whose query is q_sink.
uint sink_tokens(uint i) {
    if (is_null(p.a.q_sink) || table_row[i] >= p.a.n_sink_pages) return 0u;
    if (window == 0u) return len[i];
    return first_pos[i] < n_sink ? min(len[i], n_sink - first_pos[i]) : 0u;
}

// Adds the lanes' parts of 16 dot products: lane l gets those of tokens 2 l and 2 l + 1.
void gather(float part[kPageRows], out float dots[kTokens]) {
    const uint lane = team_lane();
    float half_sums[8], quarter_sums[4];
    [[unroll]] for (uint i = 0u; i < 8u; ++i) {
        const bool upper = (lane & 4u) != 0u;
        const float other = subgroupShuffleXor(upper ? part[i] : part[8u + i], 4u);
        half_sums[i] = (upper ? part[8u + i] : part[i]) + other;
    }
    [[unroll]] for (uint i = 0u; i < 4u; ++i) {
        const bool upper = (lane & 2u) != 0u;
        const float other = subgroupShuffleXor(upper ? half_sums[i] : half_sums[4u + i], 2u);
        quarter_sums[i] = (upper ? half_sums[4u + i] : half_sums[i]) + other;
    }
    [[unroll]] for (uint i = 0u; i < 2u; ++i) {
        const bool upper = (lane & 1u) != 0u;
        const float other = subgroupShuffleXor(upper ? quarter_sums[i] : quarter_sums[2u + i], 1u);
        dots[i] = (upper ? quarter_sums[2u + i] : quarter_sums[i]) + other;
    }
}

// The team's queries times the staged page's keys.
void page_dots(out float dots[kTeamPairs][kTokens]) {
    float part[kTeamPairs][kPageRows];
    [[unroll]] for (uint t = 0u; t < kPageRows; ++t) {
        [[unroll]] for (uint r = 0u; r < kTeamPairs; ++r) part[r][t] = 0.0;
        [[unroll]] for (uint c = 0u; c < kColumns; ++c) {
            const vec4 key = bf16x4(keys[t * kRowVectors + 8u * c + team_lane()]);
            [[unroll]] for (uint r = 0u; r < kTeamPairs; ++r) {
                [[unroll]] for (uint k = 0u; k < 4u; ++k) part[r][t] = fma(q[r][c][k], key[k], part[r][t]);
            }
        }
    }
    [[unroll]] for (uint r = 0u; r < kTeamPairs; ++r) gather(part[r], dots[r]);
}

// The same where tokens at the front of the page have another query.
void page_dots_of_two(uint n_sinks, out float dots[kTeamPairs][kTokens]) {
    for (uint pass = 0u; pass < (n_sinks == 0u ? 1u : 2u); ++pass) {
        float found[kTeamPairs][kTokens];
        if (n_sinks != 0u) read_queries(pass == 0u ? p.a.q_sink : p.a.q);
        page_dots(found);
        [[unroll]] for (uint r = 0u; r < kTeamPairs; ++r) {
            [[unroll]] for (uint j = 0u; j < kTokens; ++j) {
                if (pass == 0u || kTokens * team_lane() + j >= n_sinks) dots[r][j] = found[r][j];
            }
        }
    }
}

// Takes a page into the running softmax; `at`: its place in the list.
void attend_page(uint i, uint at) {
    float weight[kTeamPairs][kTokens];
    page_dots_of_two(sink_tokens(i), weight);
    [[unroll]] for (uint r = 0u; r < kTeamPairs; ++r) {
        float top = kUnseen;
        [[unroll]] for (uint j = 0u; j < kTokens; ++j) {
            const uint token = kTokens * team_lane() + j;
            const bool is_seen = token < len[i] && sees(sight[r], first_pos[i] + token);
            weight[r][j] = is_seen ? soft_capped(p.a.scale * weight[r][j], p.a.soft_cap) : kUnseen;
            if (is_seen) top = max(top, weight[r][j]);
        }
        top = max(high[r], team_max(top));
        const bool is_blind = top == kUnseen;
        const float shrink = is_blind ? 1.0 : exp_near(high[r] - top);
        float page_sum = 0.0;
        [[unroll]] for (uint j = 0u; j < kTokens; ++j) {
            weight[r][j] = weight[r][j] == kUnseen ? 0.0 : exp_near(weight[r][j] - top);
            page_sum += weight[r][j];
        }
        page_sum = team_sum(page_sum);
        high[r] = top;
        sum[r] = sum[r] * shrink + page_sum;
        [[unroll]] for (uint c = 0u; c < kColumns; ++c) sums[r][c] *= shrink;
        if (!is_null(p.a.page_mass) && is_there[r] && team_lane() == 0u) {
            Floats(p.a.page_mass).v[head_of[r] * p.a.capacity + at] = page_sum;
            Floats(p.a.page_high).v[head_of[r] * p.a.capacity + at] = top;
        }
    }
    const uint leader = gl_SubgroupInvocationID - team_lane();
    [[unroll]] for (uint t = 0u; t < kPageRows; ++t) {
        float w[kTeamPairs];
        [[unroll]] for (uint r = 0u; r < kTeamPairs; ++r)
            w[r] = subgroupShuffle(weight[r][t % kTokens], leader + t / kTokens);
        [[unroll]] for (uint c = 0u; c < kColumns; ++c) {
            const vec4 value = bf16x4(values[t * kRowVectors + 8u * c + team_lane()]);
            [[unroll]] for (uint r = 0u; r < kTeamPairs; ++r) sums[r][c] += w[r] * value;
        }
    }
}

// Clears the mass of a page that no row sees.
void clear_mass(uint at) {
    [[unroll]] for (uint r = 0u; r < kTeamPairs; ++r) {
        if (is_null(p.a.page_mass) || !is_there[r] || team_lane() != 0u) continue;
        Floats(p.a.page_mass).v[head_of[r] * p.a.capacity + at] = 0.0;
        Floats(p.a.page_high).v[head_of[r] * p.a.capacity + at] = kUnseen;
    }
}

void write_rows(uint unit) {
    [[unroll]] for (uint r = 0u; r < kTeamPairs; ++r) {
        if (!is_there[r]) continue;
        const uint row = unit * p.a.n_heads + row_of_q[r];
        float factor = 1.0;
        if (p.a.in_units != 0u || p.a.stays != 0u) {
            if (team_lane() == 0u) {
                Floats(p.a.high).v[row] = high[r];
                Floats(p.a.sum).v[row] = sum[r];
            }
        } else {
            float top = high[r], all = sum[r];
            if (!is_null(p.a.sinks)) {
                const float sink = Floats(p.a.sinks).v[head_of[r]];
                top = max(top, sink);
                factor = high[r] == kUnseen ? 0.0 : exp_near(high[r] - top);
                all = all * factor + (top == kUnseen ? 0.0 : exp_near(sink - top));
            }
            factor = high[r] == kUnseen ? 0.0 : factor / all;
            if (!is_null(p.a.lse) && team_lane() == 0u)
                Floats(p.a.lse).v[row] = top == kUnseen ? kUnseen : top + log_near(all);
        }
        [[unroll]] for (uint c = 0u; c < kColumns; ++c) {
            const uint vector = 8u * c + team_lane();
            if (4u * vector < p.a.head_dim)
                Vectors(p.a.result).v[row * (p.a.head_dim / 4u) + vector] = factor * sums[r][c];
        }
    }
}

void main() {
    list = gl_WorkGroupID.y;
    group = p.a.n_heads / p.a.n_lists;
    kv_head = list / (p.a.n_lists / p.a.n_kv_heads);
    n_pairs = p.a.n_tok * group;
    const uint n_tiles = (n_pairs + kPairs - 1u) / kPairs, unit = gl_WorkGroupID.x / n_tiles;
    first_pair = gl_WorkGroupID.x % n_tiles * kPairs;
    const uint own_window = is_null(p.a.head_windows) ? 0u : Words(p.a.head_windows).v[kv_head];
    window = own_window != 0u ? own_window : p.a.window;
    n_sink = own_window != 0u ? p.a.head_sinks : p.a.n_sink;
    const uint n_listed = is_null(p.a.select) ? Words(p.a.n_pages).v[kv_head] : Words(p.a.n_select).v[list];
    const uint begin = p.a.in_units != 0u ? min(n_listed, unit * kUnitPages) : 0u;
    const uint end = p.a.in_units != 0u ? min(n_listed, begin + kUnitPages) : n_listed;
    if (p.a.in_units != 0u && begin == end) return;
    read_pairs();
    for (uint first = begin; first < end; first += kRoundPages) {
        const uint n = min(end - first, kRoundPages);
        read_tables(first, n);
        for (uint i = 0u; i < n; ++i) {
            if (len[i] == 0u) {
                clear_mass(first + i);
                continue;
            }
            stage_page(i);
            attend_page(i, first + i);
        }
    }
    write_rows(unit);
}
