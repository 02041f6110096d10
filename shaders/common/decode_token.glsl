// What a workgroup of attn_decode.comp, attn_stop.comp or attn_stop_list.comp knows before it attends: which pages, the
// query's heads in shared memory, and the token that the step appends.
#ifndef WEIR_DECODE_TOKEN_GLSL
#define WEIR_DECODE_TOKEN_GLSL
#include "common/pages.glsl"
#include "common/rotation.glsl"
#include "common/team.glsl"
#include "decode.h"

layout(constant_id = 0) const uint kHeads = 1;   // heads_per_list, rounded up to a power of two
layout(constant_id = 1) const uint kLanes = 8;   // 8, 16 or 32, not more than a subgroup has
layout(constant_id = 2) const uint kChunks = 1;  // kLanes * kChunks * 4 channels or fewer

layout(constant_id = 5) const uint kDoes = 0;    // kDecode..., above
const bool kAppends = (kDoes & kDecodeAppends) != 0u, kHasNorms = (kDoes & kDecodeNorms) != 0u;
const bool kHasSinkQuery = (kDoes & kDecodeSinkQuery) != 0u, kHasMasses = (kDoes & kDecodeMasses) != 0u;

layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer PairsOf { uvec2 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Arguments { DecodeArgs args; };
layout(push_constant) uniform Push { Arguments p; };
DecodeArgs A;  // a copy: what is in memory would be loaded again after every store

const uint kVectors = kHeads * kChunks;  // of a lane
shared vec4 queries[kVectors * kLanes], sink_queries[kHasSinkQuery ? kVectors * kLanes : 1u];
shared float new_key[kMaxChannels], new_value[kMaxChannels];
shared uvec2 key_words[kMaxChannels / 4u], value_words[kMaxChannels / 4u];  // the same, as they are stored
shared vec2 turns[kMaxChannels / 2u], sink_turns[kHasSinkQuery ? kMaxChannels / 2u : 1u];
shared float inverse_rms[kHeads + 1u];
#ifndef WEIR_GATHERED
#define WEIR_GATHERED kGathered
#endif
shared vec4 gathered[WEIR_GATHERED];

struct Job {
    uint list, first_head, kv_head, select_list, table, n, split, n_active, pos, window, n_sink;
    bool has_window;  // of its own
    uint new_row;     // of the page that this workgroup appends to, or kNoRow
    uint append_row;  // of the stream
    Sight sight;
};

// What does not depend on the number of pages is loaded with it: each load that waits for another one costs a step of a
// layer a part of a microsecond, because the weights have displaced everything from the caches.
Job find_job() {
    Job j;
    j.list = gl_WorkGroupID.x;
    j.split = gl_WorkGroupID.y;
    j.first_head = j.list * A.heads_per_list;
    j.kv_head = j.first_head / (A.n_heads / A.n_kv_heads);
    j.select_list = A.list_per_head != 0u ? j.first_head : j.kv_head;
    j.table = j.kv_head * A.capacity;
    j.n = is_null(A.select) ? Words(A.n_pages).v[j.kv_head] : Words(A.n_select).v[j.select_list];
    j.pos = is_null(A.n_tokens) ? A.pos : Words(A.n_tokens).v[0];
    j.append_row = kAppends ? Words(A.append_row).v[j.kv_head] : kNoRow;
    j.window = A.window;
    j.n_sink = A.n_sink;
    j.has_window = false;
    if (!is_null(A.head_windows)) {
        const uint own = Words(A.head_windows).v[j.kv_head];
        if (own != 0u) {
            j.has_window = true;
            j.window = own;
            j.n_sink = A.head_sinks;
        }
    }
    return j;
}

// The workgroup of the last page, which is the newest, also appends.
void complete(inout Job j) {
    j.n_active = clamp((j.n + kUnitPagesOfSplit - 1u) / kUnitPagesOfSplit, 1u, A.n_splits);
    const uint last_unit = (max(j.n, 1u) - 1u) / kUnitPagesOfSplit;
    j.new_row = kAppends && j.split == last_unit % A.n_splits ? j.append_row : kNoRow;
    j.sight = sight_of(j.pos, j.window, j.n_sink);
}

float query_at(uint head, uint c) { return queries[(head * A.head_dim + c) / 4u][c % 4u]; }
void set_query(uint head, uint c, float x) { queries[(head * A.head_dim + c) / 4u][c % 4u] = x; }

void load_inputs(Job j) {
    const uint d = A.head_dim, me = gl_LocalInvocationID.x;
    for (uint i = me; i < kHeads * d / 4u; i += kThreads) {
        const uint head = 4u * i / d, at = j.first_head * d / 4u + i;
        queries[i] = head < A.heads_per_list ? Vectors(A.q).v[at] : vec4(0.0);
        if (kHasSinkQuery && !kAppends)
            sink_queries[i] = head < A.heads_per_list ? Vectors(A.q_sink).v[at] : vec4(0.0);
    }
    if (!kAppends) return;
    if (me < d) {
        new_key[me] = Floats(A.k).v[j.kv_head * d + me];
        new_value[me] = Floats(A.v).v[j.kv_head * d + me];
    }
    if (me < A.rope_dim / 2u) {
        turns[me] = vec2(Floats(A.cos_sin).v[2u * me], Floats(A.cos_sin).v[2u * me + 1u]);
        if (kHasSinkQuery)
            sink_turns[me] = vec2(Floats(A.cos_sin_sink).v[2u * me], Floats(A.cos_sin_sink).v[2u * me + 1u]);
    }
}

// RMS norms of the heads in `queries` and of the new key.
void norm_heads() {
    const uint d = A.head_dim, head = team();
    precise float sum = 0.0;
    if (head < kHeads) {
        for (uint c = team_lane(); c < d; c += kTeamLanes) sum = fma(query_at(head, c), query_at(head, c), sum);
    } else if (head == kHeads) {
        for (uint c = team_lane(); c < d; c += kTeamLanes) sum = fma(new_key[c], new_key[c], sum);
    }
    sum = team_sum(sum);
    if (team_lane() == 0u && head <= kHeads) inverse_rms[head] = 1.0 / sqrt(sum / float(d) + A.norm_eps);
    barrier();
    for (uint i = gl_LocalInvocationID.x; i < kHeads * d && !is_null(A.q_norm); i += kThreads) {
        precise float x = query_at(i / d, i % d) * inverse_rms[i / d];
        x *= Floats(A.q_norm).v[i % d];
        gathered[i / 4u][i % 4u] = x;
    }
    barrier();
    for (uint i = gl_LocalInvocationID.x; i < kHeads * d / 4u && !is_null(A.q_norm); i += kThreads)
        queries[i] = gathered[i];
    for (uint c = gl_LocalInvocationID.x; c < d && !is_null(A.k_norm); c += kThreads) {
        precise float x = new_key[c] * inverse_rms[kHeads];
        new_key[c] = x * Floats(A.k_norm).v[c];
    }
    barrier();
}

// Every invocation turns pairs of its own.
void rotate_heads() {
    const uint d = A.head_dim, half_dim = A.rope_dim / 2u;
    const uint n = kHeads * d;
    for (uint i = gl_LocalInvocationID.x; i < n / 4u && kHasSinkQuery; i += kThreads) sink_queries[i] = queries[i];
    if (kHasSinkQuery) barrier();
    for (uint i = gl_LocalInvocationID.x; i < (kHeads + 1u) * half_dim; i += kThreads) {
        const uint head = i / half_dim, angle = i % half_dim;
        const uvec2 channel = channels_of(angle, A.rope_dim, A.is_adjacent != 0u);
        const uint first = channel.x, second = channel.y;
        if (head == kHeads) {
            const vec2 y = turned(vec2(new_key[first], new_key[second]), turns[angle]);
            new_key[first] = y.x;
            new_key[second] = y.y;
            continue;
        }
        const vec2 x = vec2(query_at(head, first), query_at(head, second));
        const vec2 y = turned(x, turns[angle]);
        set_query(head, first, y.x);
        set_query(head, second, y.y);
        if (!kHasSinkQuery) continue;
        const vec2 z = turned(x, sink_turns[angle]);
        sink_queries[(head * d + first) / 4u][first % 4u] = z.x;
        sink_queries[(head * d + second) / 4u][second % 4u] = z.y;
    }
    barrier();
}

// The query as it attends, and the new key and value as they are stored.
void prepare_token(Job j) {
    if (!kAppends) return;
    if (kHasNorms) norm_heads();
    rotate_heads();
    const uint c = gl_LocalInvocationID.x;
    if (c < A.head_dim / 2u) {
        key_words[c / 2u][c % 2u] = bf16_pair(new_key[2u * c], new_key[2u * c + 1u]);
        value_words[c / 2u][c % 2u] = bf16_pair(new_value[2u * c], new_value[2u * c + 1u]);
    }
    barrier();
}

// The digest of the page has the largest and the smallest of each channel.
void store_token(Job j) {
    const uint d = A.head_dim, at = j.table + j.new_row, w = gl_LocalInvocationID.x;
    if (j.new_row == kNoRow || w >= d / 2u) return;
    const uint slot = Words(A.slots).v[at], in_page = j.pos - Words(A.first_pos).v[at];
    const uint key = key_words[w / 2u][w % 2u];
    Cells page = Cells(page_at(A.pool, slot, d));
    page.v[in_page * d / 2u + w] = key;
    page.v[(kPageRows + in_page) * d / 2u + w] = value_words[w / 2u][w % 2u];
    if (is_null(A.digests)) return;
    Cells digest = Cells(plus(A.digests, A.digest_by_row != 0u ? at : slot, 4u * d));
    uint high = digest.v[w], low = digest.v[d / 2u + w];
    digest_key(key, in_page == 0u, high, low);
    digest.v[w] = high;
    digest.v[d / 2u + w] = low;
}

#endif
