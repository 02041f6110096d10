// The end of attn_decode.comp: the workgroup's part from those of its teams, and the stream's output from the parts,
// which is that of attn_stop.comp, too.
#ifndef WEIR_DECODE_MERGE_GLSL
#define WEIR_DECODE_MERGE_GLSL
#include "common/decode_token.glsl"

const uint kPartsAhead = 8u;  // whose loads are under way at once

shared float head_high[kHeads], head_sum[kHeads];
shared bool is_last;

// NaN is larger than all numbers.
float larger(float a, float b) { return is_nan(a) || a > b ? a : b; }
bool is_unseen(float x) { return floatBitsToUint(x) == 0xFF800000u; }

// A part's values in vectors, and its maxima and sums behind all values.
uint values_at(uint list, uint split) { return (list * A.n_splits + split) * A.heads_per_list * A.head_dim / 4u; }
uint sums_at(uint list, uint split) {
    const uint n_values = gl_NumWorkGroups.x * A.n_splits * A.heads_per_list * A.head_dim;
    return n_values + 2u * (list * A.n_splits + split) * A.heads_per_list;
}

// `gathered` has the maximum and the sum of each part of each head, and gets what the part's values are multiplied with
// in the place of the maximum; a team takes a head. The log-sum-exp comes to head_high.
void merge_weights(Job j, uint first_head) {
    const uint head = min(team(), A.heads_per_list - 1u), at = head * kMaxSplits;
    const bool works = team() < A.heads_per_list;
    const float sink = is_null(A.sinks) ? kUnseen : Floats(A.sinks).v[first_head + head];
    float high = sink;
    for (uint i = team_lane(); i < j.n_active; i += kTeamLanes) high = larger(gathered[at + i].x, high);
    high = larger(subgroupShuffleXor(high, 1u), high);
    high = larger(subgroupShuffleXor(high, 2u), high);
    high = larger(subgroupShuffleXor(high, 4u), high);
    const bool nothing = is_unseen(high);
    float sum = 0.0;
    for (uint i = team_lane(); i < j.n_active; i += kTeamLanes) {
        const float share = nothing || is_unseen(gathered[at + i].x) ? 0.0 : exp_near(gathered[at + i].x - high);
        if (works) gathered[at + i].x = share;
        sum += share * gathered[at + i].y;
    }
    sum = team_sum(sum);
    if (!nothing && !is_null(A.sinks)) sum += exp_near(sink - high);
    for (uint i = team_lane(); i < j.n_active && works; i += kTeamLanes) gathered[at + i].x /= nothing ? 1.0 : sum;
    if (!works || team_lane() != 0u) return;
    head_high[head] = nothing ? kUnseen : high + log_near(sum);
    if (!is_null(A.lse)) Floats(A.lse).v[first_head + head] = head_high[head];
}

// The output, the log-sum-exp and the masses of one list from its parts.
void finish_list(Job j, uint list) {
    const uint d = A.head_dim, first_head = list * A.heads_per_list, me = gl_LocalInvocationID.x;
    for (uint i = me; i < A.heads_per_list * j.n_active; i += kThreads) {
        const uint head = i / j.n_active, part = i % j.n_active;
        const uint at = sums_at(list, part) + 2u * head;
        gathered[head * kMaxSplits + part].x = SharedFloats(A.partial).v[at];
        gathered[head * kMaxSplits + part].y = SharedFloats(A.partial).v[at + 1u];
    }
    barrier();
    merge_weights(j, first_head);
    barrier();
    for (uint i = me; i < A.heads_per_list * d / 4u; i += kThreads) {
        const uint head = 4u * i / d;
        vec4 sum = vec4(0.0);
        for (uint part = 0u; part < j.n_active; part += kPartsAhead) {
            vec4 value[kPartsAhead];
            [[unroll]] for (uint k = 0u; k < kPartsAhead; ++k)
                value[k] = SharedVectors(A.partial).v[values_at(list, min(part + k, j.n_active - 1u)) + i];
            [[unroll]] for (uint k = 0u; k < kPartsAhead; ++k)
                if (part + k < j.n_active) sum += gathered[head * kMaxSplits + part + k].x * value[k];
        }
        Vectors(A.result).v[first_head * d / 4u + i] = sum;
    }
    for (uint i = me; i < j.n && kHasMasses; i += kThreads) {
        float most = 0.0;
        for (uint h = 0u; h < A.heads_per_list; ++h) {
            const uint at = (first_head + h) * A.capacity + i;
            const float mass = SharedFloats(A.page_mass).v[at];
            const float value = is_unseen(mass) ? 0.0 : exp_near(mass - head_high[h]);
            SharedFloats(A.page_mass).v[at] = value;
            most = h == 0u || most < value ? value : most;
        }
        if (A.stamps == 0u) continue;
        Floats(A.last_score).v[j.table + i] = most;
        if (most > A.alpha || i + 1u == j.n) Cells(A.stamp).v[j.table + i] = j.pos + 1u;
    }
    barrier();
}

// The last workgroup of those whose outputs belong together finishes them.
void merge_parts(Job j) {
    const uint merge = j.list / A.lists_per_merge, n_parts = j.n_active * A.lists_per_merge;
    memoryBarrierBuffer();
    barrier();
    if (gl_LocalInvocationID.x == 0u)
        is_last = n_parts == 1u || atomicAdd(SharedCells(A.counters).v[merge], 1u) + 1u == n_parts;
    barrier();
    if (!is_last) return;
    memoryBarrierBuffer();
    for (uint i = 0u; i < A.lists_per_merge; ++i) finish_list(j, merge * A.lists_per_merge + i);
    if (gl_LocalInvocationID.x != 0u) return;
    if (n_parts != 1u) SharedCells(A.counters).v[merge] = 0u;
    if (is_null(A.attended)) return;
    const uint before = atomicAdd(SharedCells(A.attended).v[0], j.n);
    if (before + j.n < before) atomicAdd(SharedCells(A.attended).v[1], 1u);
}

#endif
