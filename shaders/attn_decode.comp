#version 460
// Computes: attention of one query row over the listed KV pages; before it, if asked to, the rotation of the query and
// the appending of the new key and value; after it page masses and stamps (lib/device/kernels.h, AttnDecodeArgs).
// Method: Dao et al., "Flash-Decoding" (splits and their merge).
// Shapes: shaders/decode.h. Launch: x over lists of query heads of one KV head, y over splits of its pages. The last
// workgroup of a KV head merges the splits in ascending order. How n pages are split depends on n alone, so a budget
// that holds everything gives the bits of dense attention.
// Numerics: f32. A masked token's value is not read: it may be NaN.
#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#include "common/pages.glsl"
#include "common/team.glsl"
#include "decode.h"

layout(constant_id = 0) const uint kHeads = 1;  // heads_per_list, rounded up to a power of two

layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Arguments { DecodeArgs args; };
layout(push_constant) uniform Push { Arguments p; };
DecodeArgs A;  // a copy: what is in memory would be loaded again after every store

const uint kPartsAhead = 8u, kValuesAhead = 4u;  // whose loads are under way at once
const uint kTile = kTilePages * kPageRows;
const uint kNoRow = 0xFFFFFFFFu;

shared vec4 queries[kHeads * kMostChannels / 4u], sink_queries[kHeads * kMostChannels / 4u];
shared float new_key[kMostChannels], new_value[kMostChannels];
shared float weights[kHeads * kTile];
shared uint is_seen[kTile];
shared float head_high[kHeads], head_sum[kHeads], head_shrink[kHeads], inverse_rms[kHeads + 1u];
shared vec4 gathered[2u * kInvocations];
shared float part_high[kHeads * kMostSplits], part_sum[kHeads * kMostSplits];
shared bool is_last;

struct Job {
    uint list, first_head, kv_head, select_list, table, n, split, per_split, n_active, pos, window, n_sink;
    Sight sight;
};

Job find_job() {
    Job j;
    j.list = gl_WorkGroupID.x;
    j.split = gl_WorkGroupID.y;
    j.first_head = j.list * A.heads_per_list;
    j.kv_head = j.first_head / (A.n_heads / A.n_kv_heads);
    j.select_list = A.list_per_head != 0u ? j.first_head : j.kv_head;
    j.table = j.kv_head * A.capacity;
    j.n = is_null(A.select) ? Words(A.n_pages).v[j.kv_head] : Words(A.n_select).v[j.select_list];
    const uint even = (j.n + A.n_splits - 1u) / A.n_splits;
    j.per_split = max(kTilePages, (even + kTilePages - 1u) / kTilePages * kTilePages);
    j.n_active = max(1u, (j.n + j.per_split - 1u) / j.per_split);
    j.pos = is_null(A.n_tokens) ? A.pos : Words(A.n_tokens).v[0];
    j.window = A.window;
    j.n_sink = A.n_sink;
    if (!is_null(A.head_windows)) {
        const uint own = Words(A.head_windows).v[j.kv_head];
        if (own != 0u) {
            j.window = own;
            j.n_sink = A.head_sinks;
        }
    }
    j.sight = sight_of(j.pos, j.window, j.n_sink);
    return j;
}

float query_at(uint head, uint c) { return queries[(head * A.head_dim + c) / 4u][c % 4u]; }
void set_query(uint head, uint c, float x) { queries[(head * A.head_dim + c) / 4u][c % 4u] = x; }

bool has_sink_query() { return A.append != 0u ? !is_null(A.cos_sin_sink) : !is_null(A.q_sink); }

void load_queries(Job j) {
    const uint d = A.head_dim;
    for (uint i = gl_LocalInvocationID.x; i < kHeads * d / 4u; i += kInvocations) {
        const uint head = 4u * i / d, at = j.first_head * d / 4u + i;
        queries[i] = head < A.heads_per_list ? Vectors(A.q).v[at] : vec4(0.0);
        if (A.append == 0u && !is_null(A.q_sink))
            sink_queries[i] = head < A.heads_per_list ? Vectors(A.q_sink).v[at] : vec4(0.0);
    }
}

// x0, x1 turned by the i-th angle.
vec2 turned(vec2 x, uvec2 cos_sin, uint i) {
    const float c = Floats(cos_sin).v[2u * i], s = Floats(cos_sin).v[2u * i + 1u];
    precise float a = x.x * c - x.y * s, b = x.x * s + x.y * c;
    return vec2(a, b);
}

// RMS norms of the heads in `queries`, and of the new key if this workgroup appends it.
void norm_heads(bool appends) {
    const uint d = A.head_dim, head = team();
    precise float sum = 0.0;
    if (head < kHeads) {
        for (uint c = team_lane(); c < d; c += kTeamLanes) sum = fma(query_at(head, c), query_at(head, c), sum);
    } else if (head == kHeads && appends) {
        for (uint c = team_lane(); c < d; c += kTeamLanes) sum = fma(new_key[c], new_key[c], sum);
    }
    sum = team_sum(sum);
    if (team_lane() == 0u && head <= kHeads) inverse_rms[head] = 1.0 / sqrt(sum / float(d) + A.norm_eps);
    barrier();
    for (uint i = gl_LocalInvocationID.x; i < kHeads * d && !is_null(A.q_norm); i += kInvocations) {
        precise float x = query_at(i / d, i % d) * inverse_rms[i / d];
        x *= Floats(A.q_norm).v[i % d];
        gathered[i / 4u][i % 4u] = x;
    }
    barrier();
    for (uint i = gl_LocalInvocationID.x; i < kHeads * d / 4u && !is_null(A.q_norm); i += kInvocations)
        queries[i] = gathered[i];
    for (uint c = gl_LocalInvocationID.x; c < d && appends && !is_null(A.k_norm); c += kInvocations) {
        precise float x = new_key[c] * inverse_rms[kHeads];
        new_key[c] = x * Floats(A.k_norm).v[c];
    }
    barrier();
}

// Every invocation turns pairs of its own.
void rotate_heads(bool appends) {
    const uint d = A.head_dim, half_dim = A.rope_dim / 2u;
    const bool sink = !is_null(A.cos_sin_sink);
    const uint n = kHeads * d;
    for (uint i = gl_LocalInvocationID.x; i < n && sink; i += kInvocations)
        sink_queries[i / 4u][i % 4u] = queries[i / 4u][i % 4u];
    barrier();
    for (uint i = gl_LocalInvocationID.x; i < (kHeads + 1u) * half_dim; i += kInvocations) {
        const uint head = i / half_dim, angle = i % half_dim;
        const uint first = A.is_adjacent != 0u ? 2u * angle : angle;
        const uint second = A.is_adjacent != 0u ? 2u * angle + 1u : angle + half_dim;
        if (head == kHeads) {
            if (!appends) continue;
            const vec2 y = turned(vec2(new_key[first], new_key[second]), A.cos_sin, angle);
            new_key[first] = y.x;
            new_key[second] = y.y;
            continue;
        }
        const vec2 x = vec2(query_at(head, first), query_at(head, second));
        const vec2 y = turned(x, A.cos_sin, angle);
        set_query(head, first, y.x);
        set_query(head, second, y.y);
        if (!sink) continue;
        const vec2 z = turned(x, A.cos_sin_sink, angle);
        sink_queries[(head * d + first) / 4u][first % 4u] = z.x;
        sink_queries[(head * d + second) / 4u][second % 4u] = z.y;
    }
    barrier();
}

// Stores the new key and value, and keeps them as they are stored. The digest of the page has the largest and the
// smallest of each channel.
void store_token(Job j, uint row) {
    const uint d = A.head_dim, at = j.table + row, slot = Words(A.slots).v[at];
    const uint in_page = j.pos - Words(A.first_pos).v[at];
    Cells page = Cells(page_at(A.pool, slot, A.head_dim));
    for (uint w = gl_LocalInvocationID.x; w < d / 2u; w += kInvocations) {
        const uint key = bf16_pair(new_key[2u * w], new_key[2u * w + 1u]);
        const uint value = bf16_pair(new_value[2u * w], new_value[2u * w + 1u]);
        page.v[in_page * d / 2u + w] = key;
        page.v[(kPageRows + in_page) * d / 2u + w] = value;
        new_key[2u * w] = low_bf16(key);
        new_key[2u * w + 1u] = high_bf16(key);
        new_value[2u * w] = low_bf16(value);
        new_value[2u * w + 1u] = high_bf16(value);
        if (is_null(A.digests)) continue;
        Cells digest = Cells(plus(A.digests, A.digest_by_row != 0u ? at : slot, 4u * d));
        uint high = digest.v[w], low = digest.v[d / 2u + w];
        digest_key(key, in_page == 0u, high, low);
        digest.v[w] = high;
        digest.v[d / 2u + w] = low;
    }
}

// Rotates the queries; the workgroup that has the stream's last page also appends. Returns the row of the new token's
// page, or kNoRow.
uint append_token(Job j) {
    const uint d = A.head_dim;
    const bool appends = j.split + 1u == j.n_active;
    for (uint c = gl_LocalInvocationID.x; c < d && appends; c += kInvocations) {
        new_key[c] = Floats(A.k).v[j.kv_head * d + c];
        new_value[c] = Floats(A.v).v[j.kv_head * d + c];
    }
    barrier();
    if (!is_null(A.q_norm) || !is_null(A.k_norm)) norm_heads(appends);
    rotate_heads(appends);
    if (!appends) return kNoRow;
    const uint row = Words(A.append_row).v[j.kv_head];
    store_token(j, row);
    barrier();
    return row;
}

const uint kRounds = kTile / kTeams;
const uint kLaneChunks = kMostChannels / 8u / kTeamLanes;  // of 8 channels of a key

// The logits of the tile's tokens for all heads; each team takes every kTeams-th token. All loads come first.
void tile_logits(Job j, uint first_listed, uint end, uint new_row) {
    const uint d = A.head_dim, n_chunks = d / 8u;
    uint rows[kRounds], positions[kRounds];
    bool seen[kRounds];
    uvec4 keys[kRounds][kLaneChunks];
    [[unroll]] for (uint i = 0u; i < kRounds; ++i) {
        const uint token = i * kTeams + team(), in_page = token % kPageRows, listed = first_listed + token / kPageRows;
        const uint there = min(listed, end - 1u);  // so that what is loaded exists
        rows[i] = is_null(A.select) ? there : Words(A.select).v[j.select_list * A.capacity + there];
        const uint slot = Words(A.slots).v[j.table + rows[i]];
        positions[i] = Words(A.first_pos).v[j.table + rows[i]] + in_page;
        seen[i] = listed < end && in_page < Words(A.len).v[j.table + rows[i]] && sees(j.sight, positions[i]);
        Quads key = Quads(plus(page_at(A.pool, slot, d), in_page, 2u * d));
        [[unroll]] for (uint k = 0u; k < kLaneChunks; ++k) {
            const uint c = team_lane() + k * kTeamLanes;
            if (c < n_chunks) keys[i][k] = key.v[c];
        }
        if (team_lane() == 0u) is_seen[token] = seen[i] ? 1u : 0u;
    }
    [[unroll]] for (uint i = 0u; i < kRounds; ++i) {
        const bool is_new = rows[i] == new_row && positions[i] == j.pos;
        const bool is_sink = rows[i] < A.n_sink_pages && (j.window == 0u || positions[i] < j.n_sink);
        const bool by_sink = has_sink_query() && is_sink;
        float dots[kHeads];
        [[unroll]] for (uint h = 0u; h < kHeads; ++h) dots[h] = 0.0;
        [[unroll]] for (uint k = 0u; k < kLaneChunks; ++k) {
            const uint c = team_lane() + k * kTeamLanes;
            if (c >= n_chunks) break;
            vec4 lo = bf16x4(keys[i][k].xy), hi = bf16x4(keys[i][k].zw);
            if (is_new) {
                lo = vec4(new_key[8u * c], new_key[8u * c + 1u], new_key[8u * c + 2u], new_key[8u * c + 3u]);
                hi = vec4(new_key[8u * c + 4u], new_key[8u * c + 5u], new_key[8u * c + 6u], new_key[8u * c + 7u]);
            }
            [[unroll]] for (uint h = 0u; h < kHeads; ++h) {
                const uint at = h * d / 4u + 2u * c;
                const vec4 a = by_sink ? sink_queries[at] : queries[at];
                const vec4 b = by_sink ? sink_queries[at + 1u] : queries[at + 1u];
                dots[h] += dot(lo, a) + dot(hi, b);
            }
        }
        [[unroll]] for (uint h = 0u; h < kHeads; ++h) {
            const float sum = team_sum(dots[h]);
            if (team_lane() != h) continue;
            weights[h * kTile + i * kTeams + team()] = seen[i] ? soft_capped(A.scale * sum, A.soft_cap) : kUnseen;
        }
    }
}

float larger(float a, float b) { return is_nan(a) || a > b ? a : b; }

// Logits become weights; a team takes a head. Masses of pages are left as logarithms.
void tile_weights(Job j, uint first_listed, uint end) {
    const uint head = team();
    const bool works = head < kHeads;
    const uint at = (works ? head : 0u) * kTile + team_lane() * (kTile / kTeamLanes);
    float high = kUnseen;
    [[unroll]] for (uint i = 0u; i < kTile / kTeamLanes; ++i) high = larger(weights[at + i], high);
    high = larger(subgroupShuffleXor(high, 1u), high);
    high = larger(subgroupShuffleXor(high, 2u), high);
    high = larger(subgroupShuffleXor(high, 4u), high);
    const float before = head_high[works ? head : 0u];
    const float most = larger(before, high);
    float sum = 0.0;
    float own[kTile / kTeamLanes];
    [[unroll]] for (uint i = 0u; i < kTile / kTeamLanes; ++i) {
        const float logit = weights[at + i];
        own[i] = floatBitsToUint(logit) == floatBitsToUint(kUnseen) ? 0.0 : exp_near(logit - most);
        sum += own[i];
    }
    // kPageRows / (kTile / kTeamLanes) neighbouring lanes have a page.
    const float page = sum + subgroupShuffleXor(sum, 1u);
    float all = page + subgroupShuffleXor(page, 2u);
    all += subgroupShuffleXor(all, 4u);
    if (works) {
        [[unroll]] for (uint i = 0u; i < kTile / kTeamLanes; ++i) weights[at + i] = own[i];
        const uint listed = first_listed + team_lane() / 2u;
        if (!is_null(A.page_mass) && team_lane() % 2u == 0u && listed < end && head < A.heads_per_list)
            SharedFloats(A.page_mass).v[(j.first_head + head) * A.capacity + listed] =
                page == 0.0 ? kUnseen : most + log_near(page);
    }
    barrier();  // every lane has read head_high
    if (works && team_lane() == 0u) {
        const bool first = floatBitsToUint(before) == floatBitsToUint(kUnseen);
        const float shrink = first ? 0.0 : exp_near(before - most);
        head_high[head] = most;
        head_shrink[head] = shrink;
        head_sum[head] = head_sum[head] * shrink + all;
    }
}

// A chunk of the values of `first` and every so many tokens after it; of tokens that do not exist others stand there.
void load_values(Job j, uint listed, uint end, uint first, out uvec4 values[kValuesAhead]) {
    const uint d = A.head_dim, n_chunks = d / 8u, chunk = gl_LocalInvocationID.x % n_chunks;
    [[unroll]] for (uint k = 0u; k < kValuesAhead; ++k) {
        const uint token = min(first + k * (kInvocations / n_chunks), kTile - 1u);
        const uint there = min(listed + token / kPageRows, end - 1u);
        const uint row = is_null(A.select) ? there : Words(A.select).v[j.select_list * A.capacity + there];
        const uvec2 page = page_at(A.pool, Words(A.slots).v[j.table + row], d);
        values[k] = Quads(plus(page, kPageRows + token % kPageRows, 2u * d)).v[chunk];
    }
}

void attend(Job j, uint new_row, out vec4 lo_sum[kHeads], out vec4 hi_sum[kHeads]) {
    const uint d = A.head_dim, n_chunks = d / 8u, chunk = gl_LocalInvocationID.x % n_chunks;
    const uint group = gl_LocalInvocationID.x / n_chunks, n_groups = kInvocations / n_chunks;
    [[unroll]] for (uint h = 0u; h < kHeads; ++h) lo_sum[h] = hi_sum[h] = vec4(0.0);
    const uint begin = j.split * j.per_split, end = min(j.n, begin + j.per_split);
    // Of the last tile, the token that was appended.
    const uint new_token = new_row == kNoRow ? kNoRow
                                             : (end - 1u - begin) % kTilePages * kPageRows + j.pos -
                                                   Words(A.first_pos).v[j.table + new_row];
    for (uint listed = begin; listed < end; listed += kTilePages) {
        uvec4 values[kValuesAhead];
        load_values(j, listed, end, group, values);  // they come while the weights are computed
        tile_logits(j, listed, end, new_row);
        barrier();
        tile_weights(j, listed, end);
        barrier();
        [[unroll]] for (uint h = 0u; h < kHeads; ++h) {
            lo_sum[h] *= head_shrink[h];
            hi_sum[h] *= head_shrink[h];
        }
        for (uint first = group; first < kTile && group < n_groups; first += kValuesAhead * n_groups) {
            if (first != group) load_values(j, listed, end, first, values);
            [[unroll]] for (uint k = 0u; k < kValuesAhead; ++k) {
                const uint token = first + k * n_groups;
                if (token >= kTile || is_seen[token] == 0u) continue;
                vec4 lo = bf16x4(values[k].xy), hi = bf16x4(values[k].zw);
                if (token == new_token && listed + kTilePages >= end) {
                    const uint c = 8u * chunk;
                    lo = vec4(new_value[c], new_value[c + 1u], new_value[c + 2u], new_value[c + 3u]);
                    hi = vec4(new_value[c + 4u], new_value[c + 5u], new_value[c + 6u], new_value[c + 7u]);
                }
                [[unroll]] for (uint h = 0u; h < kHeads; ++h) {
                    const float w = weights[h * kTile + token];
                    lo_sum[h] += w * lo;
                    hi_sum[h] += w * hi;
                }
            }
        }
        barrier();
    }
}

// A part's values in vectors, and its maxima and sums behind all values.
uint values_at(uint list, uint split) { return (list * A.n_splits + split) * A.heads_per_list * A.head_dim / 4u; }
uint sums_at(uint list, uint split) {
    const uint n_values = gl_NumWorkGroups.x * A.n_splits * A.heads_per_list * A.head_dim;
    return n_values + 2u * (list * A.n_splits + split) * A.heads_per_list;
}

// Adds up the groups of invocations, and writes the workgroup's part.
void write_part(Job j, vec4 lo_sum[kHeads], vec4 hi_sum[kHeads]) {
    const uint d = A.head_dim, n_chunks = d / 8u, n_groups = kInvocations / n_chunks, me = gl_LocalInvocationID.x;
    const uint part = 4u * values_at(j.list, j.split), sums = sums_at(j.list, j.split);
    [[unroll]] for (uint h = 0u; h < kHeads; ++h) {
        gathered[2u * me] = lo_sum[h];
        gathered[2u * me + 1u] = hi_sum[h];
        barrier();
        if (me < d && h < A.heads_per_list) {
            float sum = 0.0;
            for (uint g = 0u; g < n_groups; ++g) sum += gathered[2u * (g * n_chunks + me / 8u) + me % 8u / 4u][me % 4u];
            SharedFloats(A.partial).v[part + h * d + me] = sum;
            if (me == 0u) {
                SharedFloats(A.partial).v[sums + 2u * h] = head_high[h];
                SharedFloats(A.partial).v[sums + 2u * h + 1u] = head_sum[h];
            }
        }
        barrier();
    }
}

// What each part's values are multiplied with, in the place of its maximum; a team takes a head. The log-sum-exp comes
// to head_high.
void merge_weights(Job j, uint first_head) {
    const uint head = min(team(), A.heads_per_list - 1u), at = head * kMostSplits;
    const bool works = team() < A.heads_per_list;
    const float sink = is_null(A.sinks) ? kUnseen : Floats(A.sinks).v[first_head + head];
    float high = sink;
    for (uint i = team_lane(); i < j.n_active; i += kTeamLanes) high = larger(part_high[at + i], high);
    high = larger(subgroupShuffleXor(high, 1u), high);
    high = larger(subgroupShuffleXor(high, 2u), high);
    high = larger(subgroupShuffleXor(high, 4u), high);
    const bool nothing = floatBitsToUint(high) == floatBitsToUint(kUnseen);
    float sum = 0.0;
    for (uint i = team_lane(); i < j.n_active; i += kTeamLanes) {
        const bool empty = nothing || floatBitsToUint(part_high[at + i]) == floatBitsToUint(kUnseen);
        const float share = empty ? 0.0 : exp_near(part_high[at + i] - high);
        if (works) part_high[at + i] = share;
        sum += share * part_sum[at + i];
    }
    sum = team_sum(sum);
    if (!nothing && !is_null(A.sinks)) sum += exp_near(sink - high);
    for (uint i = team_lane(); i < j.n_active && works; i += kTeamLanes) part_high[at + i] /= nothing ? 1.0 : sum;
    if (!works || team_lane() != 0u) return;
    head_high[head] = nothing ? kUnseen : high + log_near(sum);
    if (!is_null(A.lse)) Floats(A.lse).v[first_head + head] = head_high[head];
}

// The output, the log-sum-exp and the masses of one list from its parts.
void finish_list(Job j, uint list) {
    const uint d = A.head_dim, first_head = list * A.heads_per_list, me = gl_LocalInvocationID.x;
    for (uint i = me; i < A.heads_per_list * j.n_active; i += kInvocations) {
        const uint head = i / j.n_active, part = i % j.n_active;
        const uint at = sums_at(list, part) + 2u * head;
        part_high[head * kMostSplits + part] = SharedFloats(A.partial).v[at];
        part_sum[head * kMostSplits + part] = SharedFloats(A.partial).v[at + 1u];
    }
    barrier();
    merge_weights(j, first_head);
    barrier();
    for (uint i = me; i < A.heads_per_list * d / 4u; i += kInvocations) {
        const uint head = 4u * i / d;
        vec4 sum = vec4(0.0);
        for (uint part = 0u; part < j.n_active; part += kPartsAhead) {
            vec4 value[kPartsAhead];
            [[unroll]] for (uint k = 0u; k < kPartsAhead; ++k)
                value[k] = SharedVectors(A.partial).v[values_at(list, min(part + k, j.n_active - 1u)) + i];
            [[unroll]] for (uint k = 0u; k < kPartsAhead; ++k)
                if (part + k < j.n_active) sum += part_high[head * kMostSplits + part + k] * value[k];
        }
        Vectors(A.result).v[first_head * d / 4u + i] = sum;
    }
    for (uint i = me; i < j.n && !is_null(A.page_mass); i += kInvocations) {
        float most = 0.0;
        for (uint h = 0u; h < A.heads_per_list; ++h) {
            const uint at = (first_head + h) * A.capacity + i;
            const float mass = SharedFloats(A.page_mass).v[at];
            const float value = floatBitsToUint(mass) == floatBitsToUint(kUnseen) ? 0.0 : exp_near(mass - head_high[h]);
            SharedFloats(A.page_mass).v[at] = value;
            most = h == 0u || most < value ? value : most;
        }
        if (A.stamps == 0u) continue;
        Floats(A.last_score).v[j.table + i] = most;
        if (most > A.alpha || i + 1u == j.n) Cells(A.stamp).v[j.table + i] = j.pos + 1u;
    }
    barrier();
}

void main() {
    A = p.args;
    const Job j = find_job();
    if (j.split >= j.n_active) return;
    load_queries(j);
    if (gl_LocalInvocationID.x < kHeads) {
        head_high[gl_LocalInvocationID.x] = kUnseen;
        head_sum[gl_LocalInvocationID.x] = 0.0;
    }
    barrier();
    const uint new_row = A.append != 0u ? append_token(j) : kNoRow;
    vec4 lo_sum[kHeads], hi_sum[kHeads];
    attend(j, new_row, lo_sum, hi_sum);
    write_part(j, lo_sum, hi_sum);
    memoryBarrierBuffer();
    barrier();
    const uint merge = j.list / A.lists_per_merge;
    if (gl_LocalInvocationID.x == 0u)
        is_last = atomicAdd(SharedCells(A.counters).v[merge], 1u) + 1u == j.n_active * A.lists_per_merge;
    barrier();
    if (!is_last) return;
    memoryBarrierBuffer();
    for (uint i = 0u; i < A.lists_per_merge; ++i) finish_list(j, merge * A.lists_per_merge + i);
    if (gl_LocalInvocationID.x != 0u) return;
    SharedCells(A.counters).v[merge] = 0u;
    if (is_null(A.attended)) return;
    const uint before = atomicAdd(SharedCells(A.attended).v[0], j.n);
    if (before + j.n < before) atomicAdd(SharedCells(A.attended).v[1], 1u);
}
