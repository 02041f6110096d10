#version 460
// Computes: the list of the pages that attn_stop.comp would attend, by ascending rows, for attn_decode.comp: where a
// workgroup has no registers for what all heads of a group have attended, or where the masses of the pages are wanted
// (lib/device/kernels/attn_stop.h). The query is rotated and the new key appended before.
// Method: that of attn_stop.comp, from keys alone, and each page for some heads of the group at a time.
// Shapes: shaders/decode.h; heads_per_list are a whole group, kHeads those of a slice, lists_per_merge the slices; out
// listed [n_kv_heads, capacity], n_listed [n_kv_heads]. Launch: a workgroup for each KV head.
// Numerics: f32. Which pages are attended depends on the number of lanes only by rounding.
// Paper: Zhou et al., "Progressive Sparse Attention", arXiv:2503.00392, algorithm 1.
#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#define WEIR_ANY_INVOCATIONS
#define WEIR_GATHERED 1
#define WEIR_STOP_HEADS kMaxStopHeads
#include "common/stop_rounds.glsl"

void load_slice(uint first_head, uint n_heads, out vec4 q[kVectors]) {
    const uint n_chunks = A.head_dim / 4u;
    [[unroll]] for (uint h = 0u; h < kHeads; ++h) {
        [[unroll]] for (uint k = 0u; k < kChunks; ++k) {
            const uint c = lane() + k * kLanes;
            q[h * kChunks + k] = vec4(0.0);
            if (h < n_heads && c < n_chunks) q[h * kChunks + k] = Vectors(A.q).v[(first_head + h) * n_chunks + c];
        }
    }
}

// The maximum of one head's logits, and what the lane's own ones have of their sum.
void sum_page(Job j, Page page, vec4 q[kVectors], out Attended r) {
    [[unroll]] for (uint i = 0u; i < kVectors; ++i) r.value[i] = vec4(0.0);
    r.high = kUnseen;
    r.sum = 0.0;
    uvec2 keys[kRowVectors];
    load_rows(page, 0u, keys);
    [[dont_unroll]] for (uint first = 0u; first < kPageRows; first += kTokens) {
        const uint next = min(first + kTokens, kPageRows - kTokens);
        float weight = logit_of(j, page, first, keys, q);
        load_rows(page, next, keys);
        weigh(weight, r);
    }
}

void sum_round(Job j, uint first, uint n_round) {
    const uint own = group(), n_heads = A.heads_per_list / A.lists_per_merge;
    const bool has_page = own < n_round;
    const Page page = page_in_row(j, order[first + min(own, n_round - 1u)], 0u, has_page);
    [[dont_unroll]] for (uint head = 0u; head < A.heads_per_list; head += n_heads) {
        vec4 q[kVectors];
        load_slice(j.first_head + head, n_heads, q);
        Attended r;
        sum_page(j, page, q, r);
        note_page(head, n_heads, own, has_page, page, r.high, r.sum);
    }
    barrier();
}

// The rows up to `end_row` in the order, of which there are `count`.
void write_list(Job j, uint end_row, uint count) {
    const uint end_rank = rank_of(end_row);
    uint place = 0u;
    barrier();  // what was counted before has been read
    for (uint first = 0u, side = 0u; first < n; first += kThreads, side ^= 1u) {
        const uint row = first + invocation();
        const bool is_in = row < n && !comes_after(row, rank_of(min(row, n - 1u)), end_row, end_rank);
        const uvec2 before = scan(is_in ? 1u : 0u, side);
        if (is_in) Cells(A.listed).v[table + place + before.x] = row;
        place += before.y;
    }
    if (invocation() == 0u) Cells(A.n_listed).v[j.kv_head] = count;
}

// A stream with a window of its own is attended whole.
void list_all(Job j) {
    for (uint row = invocation(); row < n; row += kThreads) Cells(A.listed).v[table + row] = row;
    if (invocation() == 0u) Cells(A.n_listed).v[j.kv_head] = n;
}

void main() {
    A = p.args;
    Job j = find_job();
    complete(j);
    j.new_row = kNoRow;
    n = j.n;
    table = j.table;
    if (j.has_window) {
        list_all(j);
        return;
    }
    begin_order();
    Seen seen = Seen(kUnseen, 0.0, kNoMin, 0u, kNotDone);
    const uint n_listed = min(n, max(A.max_pages, n_forced_left));
    uint taken = 0u, most = kNotDone, end_row = n - 1u;
    while (taken < min(n_listed, most)) {
        const uint begin = taken, end = taken + order_batch(n_listed - taken);
        for (uint first = 0u; taken < min(end, most) && most == kNotDone; first += kGroups) {
            const uint n_round = min(end - taken, kGroups);
            sum_round(j, first, n_round);
            most = enough_after(j, first, taken, n_round, seen);
            taken += n_round;
            barrier();  // the round has been read
        }
        taken = min(end, most);
        end_row = order[taken - begin - 1u];
    }
    write_list(j, end_row, taken);
}
