#version 460
// Computes: attention of one query row that takes the most important pages first and stops when it has seen enough
// (lib/device/kernels.h, AttnStopArgs; the rule is that of lib/ops/attn_progressive_ref.cpp); before it, if asked to,
// the rotation of the query and the appending of the new key and value.
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
#define WEIR_MOST_OWN_ROWS
#include "common/decode_attend.glsl"
#include "common/top_rows.glsl"

const uint kNotDone = 0xFFFFFFFFu;
#define kNoMin uintBitsToFloat(0x7F800000u)

// The next pages of the order, ascending; then in order.
shared uint next_row[kStopBatch], next_key[kStopBatch], order[kStopBatch];
// Sums of a round's pages: the logarithm of each head's sum, with bounds what they may have at most, relative to
// `base`, and whether they may be the least.
shared float page_lse[kHeads * kGroups], page_most[kHeads * kGroups];
shared bool may_be_least[kGroups];
shared float base[kHeads];
shared uint done_at[kHeads];

// The stream, the same for all invocations; and up to which page of the order pages were taken.
uint n, table, n_forced_left, last_key, last_row;
bool is_first, takes_forced_alone;

// What a head has seen, in the invocation of its number.
struct Seen {
    float high, sum, least;  // exp(high) * sum is the sum of exp(logit); the least log of the sum of a page
    uint n_quiet;            // last pages with little of it each
    uint done_at;            // pages after which it was enough, or kNotDone
};

bool is_forced(uint row) {
    return row + 1u == n || row < A.first_pages || (Words(A.flags).v[table + row] & kFlagKept) != 0u;
}
// The order: the larger key first, of equals the lower row.
uint rank_of(uint row) { return is_forced(row) ? kKeyAlways : ordered_key(Floats(A.rank).v[table + row]); }
bool is_left(uint row, uint rank) { return is_first || rank < last_key || (rank == last_key && row > last_row); }

// Forced pages are taken besides the others if a batch has room for all of them, and else before them, by row.
uint key_of(uint row) {
    const uint rank = rank_of(row);
    if (!is_left(row, rank)) return kKeyNever;
    if (!takes_forced_alone) return rank;
    return rank == kKeyAlways ? 0xC0000000u - row : kKeyNever;
}
void take(uint row, uint key, uint place) {
    next_row[place] = row;
    next_key[place] = key;
}

// Puts up to `most` pages that are left into order; returns how many there are.
uint order_batch(uint most) {
    barrier();  // what was in order before has been read
    takes_forced_alone = n_forced_left >= min(most, kStopBatch);
    const uint m = take_best(n, min(most, kStopBatch) - (takes_forced_alone ? 0u : n_forced_left));
    n_forced_left -= min(m, n_forced_left);
    barrier();
    for (uint i = invocation(); i < m; i += kThreads) {
        const uint key = next_key[i];
        uint before = 0u;
        for (uint k = 0u; k < m; ++k) before += next_key[k] > key || (next_key[k] == key && k < i) ? 1u : 0u;
        order[before] = next_row[i];
    }
    barrier();
    last_row = order[m - 1u];
    last_key = rank_of(last_row);
    is_first = false;
    return m;
}

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

// The most that a head's page may have, as a logarithm.
float most_of_page(uint head, uint row, uint len) {
    const float dot = Floats(A.bound).v[head * A.capacity + row];
    return soft_capped(A.scale * dot, A.soft_cap) + log_near(float(len));
}

// With bounds: page_most of the round's `n_round` pages, and what the pages that are left behind them may have at most
// together. `high` is that of the head of this invocation.
void bound_rest(Job j, uint first, uint n_round, float high, out float rest[kHeads]) {
    const uint me = invocation();
    if (me < A.heads_per_list) {
        for (uint i = 0u; i < n_round; ++i) high = larger(high, page_lse[me * kGroups + i]);
        base[me] = is_unseen(high) ? 0.0 : high;
    }
    barrier();
    for (uint at = me; at < A.heads_per_list * n_round; at += kThreads) {
        const uint head = at / n_round, i = at % n_round, row = order[first + i];
        const float most = most_of_page(j.first_head + head, row, Words(A.len).v[table + row]);
        page_most[head * kGroups + i] = exp_near(most - base[head]);
    }
    const uint end_row = order[first + n_round - 1u], end_rank = rank_of(end_row);
    [[unroll]] for (uint h = 0u; h < kHeads; ++h) {
        float sum = 0.0;
        for (uint row = me; row < n && h < A.heads_per_list; row += kThreads) {
            const uint rank = rank_of(row);
            if (rank > end_rank || (rank == end_rank && row <= end_row)) continue;
            sum += exp_near(most_of_page(j.first_head + h, row, Words(A.len).v[table + row]) - base[h]);
        }
        rest[h] = workgroup_sum(sum);  // it synchronises
    }
}

// Adds the round's pages, `n_before` of the order come before them, to what a head has seen, and looks after each.
void look(uint head, uint n_before, uint n_round, float rest, inout Seen seen) {
    for (uint i = 0u; i < n_round; ++i) {
        const float lse = page_lse[head * kGroups + i], high = larger(seen.high, lse);
        const float about = is_unseen(high) ? 0.0 : high;
        const float of_page = is_unseen(lse) ? 0.0 : exp_near(lse - about);
        seen.sum = (is_unseen(seen.high) ? 0.0 : seen.sum * exp_near(seen.high - about)) + of_page;
        seen.high = high;
        bool is_done;
        if (A.quiet_pages > 0u) {
            // A share of 0 is that of a page without tokens that are seen, not of one too small for f32.
            const bool is_quiet = is_unseen(lse) || (A.quiet_share > 0.0 && of_page <= A.quiet_share * seen.sum);
            seen.n_quiet = is_quiet ? seen.n_quiet + 1u : 0u;
            is_done = seen.n_quiet >= A.quiet_pages;
        } else {
            if (may_be_least[i] && lse < seen.least) seen.least = lse;
            const uint n_left = n - min(n, n_before + i + 1u);
            float others;
            if (!is_null(A.bound)) {
                others = rest;
                for (uint k = i + 1u; k < n_round; ++k) others += page_most[head * kGroups + k];
                others *= exp_near(base[head] - about);
                if (others > 3e38) others = 3e38;  // so that odds of 0 are met
            } else {
                others = seen.least == kNoMin ? kNoMin : float(n_left) * exp_near(seen.least - about);
            }
            is_done = is_finite(A.odds) && (n_left == 0u || A.odds * others < seen.sum);
        }
        if (is_done && seen.done_at == kNotDone) seen.done_at = n_before + i + 1u;
    }
}

// After how many pages all heads were done, whole microbatches, or kNotDone.
uint enough() {
    uint most = 0u;
    for (uint h = 0u; h < A.heads_per_list; ++h) most = max(most, done_at[h]);
    return most == kNotDone ? most : (most + A.microbatch - 1u) / A.microbatch * A.microbatch;
}

// Returns the number of pages that the stream attends.
uint attend(Job j, inout Attended a) {
    vec4 q[kVectors];
    load_queries(q);
    Seen seen = Seen(kUnseen, 0.0, kNoMin, 0u, kNotDone);
    const uint me = invocation(), n_listed = min(n, max(A.max_pages, n_forced_left));
    uint taken = 0u, most = kNotDone;
    while (taken < min(n_listed, most)) {
        const uint m = order_batch(n_listed - taken), end = taken + m;
        for (uint first = 0u; taken < min(end, most); first += kGroups) {
            const uint n_round = min(min(end, most) - taken, kGroups), own = group();
            const bool has_page = own < n_round;
            const Page page = page_in_row(j, order[first + min(own, n_round - 1u)], 0u, has_page);
            Attended r;
            attend_page(j, page, q, r);
            const float sum = sum_of_head(r.sum);
            if (has_page && lane() < kHeads)
                page_lse[lane() * kGroups + own] = is_unseen(r.high) ? kUnseen : r.high + log_near(sum);
            if (has_page && lane() == 0u) may_be_least[own] = page.len == kPageRows && !is_forced(page.row);
            barrier();
            if (most == kNotDone) {
                float rest[kHeads];
                [[unroll]] for (uint h = 0u; h < kHeads; ++h) rest[h] = 0.0;
                if (!is_null(A.bound)) bound_rest(j, first, n_round, seen.high, rest);
                float own_rest = 0.0;
                [[unroll]] for (uint h = 0u; h < kHeads; ++h) own_rest = me == h ? rest[h] : own_rest;
                if (me < A.heads_per_list) {
                    look(me, taken, n_round, own_rest, seen);
                    done_at[me] = seen.done_at;
                }
                barrier();
                most = enough();
            }
            keep(r, has_page && taken + own < most, a);
            taken += n_round;
            barrier();  // the round has been read
        }
    }
    return min(taken, most);
}

// As many pages as are forced, for all invocations.
uint count_forced() {
    uint count = 0u;
    for (uint row = invocation(); row < n; row += kThreads) count += is_forced(row) ? 1u : 0u;
    return workgroup_count(count);
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
    is_first = true;
    barrier();
    prepare_token(j);
    n_forced_left = count_forced();
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
