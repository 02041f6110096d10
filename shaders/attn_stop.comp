#version 460
// Computes: attention of one query row that takes the most important pages first and stops when it has seen enough
// (lib/device/kernels/attn_stop.h); before it, if asked to, the rotation of the query and the appending of the new key
// and value.
// Method: a workgroup has a KV head and puts the next kStopBatch pages into order. It attends them in rounds, each
// group of lanes a page by itself; then an invocation for each head looks, page by page, after how many of them the
// head had seen enough. A page enters its group's sums only then: those of a round that turn out to be too many do not.
// Shapes: shaders/decode.h; heads_per_list are a whole group. Launch: a workgroup for each KV head.
// Numerics: f32. Which pages are attended depends on the number of lanes only by rounding.
// Paper: Zhou et al., "Progressive Sparse Attention", arXiv:2503.00392, algorithm 1.
#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#define WEIR_ANY_INVOCATIONS
#define WEIR_GATHERED (kMaxTeamHeads * kMaxSplits)
#define WEIR_STOP_HEADS kHeads
#include "common/stop_rounds.glsl"

void clear(out Attended a) {
    [[unroll]] for (uint i = 0u; i < kVectors; ++i) a.value[i] = vec4(0.0);
    a.high = kUnseen;
    a.sum = 0.0;
}

void attend_page(Job j, Page page, vec4 q[kVectors], out Attended r) {
    clear(r);
    uvec2 keys[kRowVectors], values[kRowVectors];
    load_rows(page, 0u, keys);
    load_rows(page, kPageRows, values);
    [[dont_unroll]] for (uint first = 0u; first < kPageRows; first += kTokens) {
        const uint next = min(first + kTokens, kPageRows - kTokens);
        float weight = logit_of(j, page, first, keys, q);
        load_rows(page, next, keys);
        weigh(weight, r);
        add_values(j, page, first, values, weight, r);
        load_rows(page, kPageRows + next, values);
    }
}

// Adds a page to what the group has attended, unless it turned out to be one too many; by all lanes in any case.
void keep(Attended r, bool counts, inout Attended a) {
    const float high = larger(a.high, r.high);
    const float of_a = is_unseen(a.high) ? 0.0 : exp_near(a.high - high);
    const float of_r = is_unseen(r.high) ? 0.0 : exp_near(r.high - high);
    if (counts) {
        a.high = high;
        a.sum = a.sum * of_a + r.sum * of_r;
    }
    const uint first_lane = gl_SubgroupInvocationID - lane();
    [[unroll]] for (uint h = 0u; h < kHeads; ++h) {
        const float by_a = subgroupShuffle(of_a, first_lane + h), by_r = subgroupShuffle(of_r, first_lane + h);
        [[unroll]] for (uint k = 0u; k < kChunks; ++k) {
            const uint i = h * kChunks + k;
            if (counts) a.value[i] = by_a * a.value[i] + by_r * r.value[i];
        }
    }
}

// Returns the number of pages that the stream attends.
uint attend(Job j, inout Attended a) {
    vec4 q[kVectors];
    load_queries(q);
    Seen seen = Seen(kUnseen, 0.0, kNoMin, 0u, kNotDone);
    const uint n_listed = min(n, max(A.max_pages, n_forced_left));
    uint taken = 0u, most = kNotDone;
    while (taken < min(n_listed, most)) {
        const uint m = order_batch(n_listed - taken), end = taken + m;
        for (uint first = 0u; taken < min(end, most); first += kGroups) {
            const uint n_round = min(min(end, most) - taken, kGroups), own = group();
            const bool has_page = own < n_round;
            const Page page = page_in_row(j, order[first + min(own, n_round - 1u)], 0u, has_page);
            Attended r;
            attend_page(j, page, q, r);
            note_page(0u, A.heads_per_list, own, has_page, page, r.high, r.sum);
            barrier();
            if (most == kNotDone) most = enough_after(j, first, taken, n_round, seen);
            keep(r, has_page && taken + own < most, a);
            taken += n_round;
            barrier();  // the round has been read
        }
    }
    return min(taken, most);
}

// A group's part is a split, whose merge is that of attn_decode.comp.
void write_part(Job j, Attended a) {
    const uint d = A.head_dim, part = values_at(j.list, group()), sums = sums_at(j.list, group());
    a.sum = sum_of_head(a.sum);
    [[unroll]] for (uint i = 0u; i < kVectors; ++i) {
        const uint head = i / kChunks, vector = lane() + i % kChunks * kLanes;
        if (head < A.heads_per_list && vector < d / 4u)
            SharedVectors(A.partial).v[part + head * d / 4u + vector] = a.value[i];
    }
    if (lane() >= A.heads_per_list) return;
    SharedFloats(A.partial).v[sums + 2u * lane()] = a.high;
    SharedFloats(A.partial).v[sums + 2u * lane() + 1u] = a.sum;
}

void main() {
    A = p.args;
    Job j = find_job();
    if (j.has_window) return;  // attn_decode.comp attends it
    load_inputs(j);
    complete(j);
    j.new_row = j.append_row;
    j.n_active = kGroups;
    n = j.n;
    table = j.table;
    barrier();
    prepare_token(j);
    begin_order();
    Attended a;
    clear(a);
    const uint n_attended = attend(j, a);
    store_token(j);
    write_part(j, a);
    memoryBarrierBuffer();
    barrier();
    finish_list(j, j.list);
    if (invocation() != 0u || is_null(A.attended)) return;
    const uint before = atomicAdd(SharedCells(A.attended).v[0], n_attended);
    if (before + n_attended < before) atomicAdd(SharedCells(A.attended).v[1], 1u);
}
