// The pages of a stream in the order of their importance, some at a time, and after how many of them a query head has
// seen enough: for attn_stop.comp and attn_stop_list.comp. The rule is that of lib/ops/attn_progressive_ref.cpp.
//
// Contract of the shader that includes it:
//   WEIR_STOP_HEADS    the most query heads of a group, for what the workgroup keeps of each; A.heads_per_list are one
//   n, table           are set before anything is called, for all invocations
#ifndef WEIR_STOP_ROUNDS_GLSL
#define WEIR_STOP_ROUNDS_GLSL
#define WEIR_MOST_OWN_ROWS
#include "common/decode_attend.glsl"
#include "common/top_rows.glsl"

const uint kNotDone = 0xFFFFFFFFu;
#define kNoMin uintBitsToFloat(0x7F800000u)

// The next pages of the order, ascending; then in order.
shared uint next_row[kStopBatch], next_key[kStopBatch], order[kStopBatch];
// Sums of a round's pages: the logarithm of each head's sum, with bounds what they may have at most, relative to
// `base`, and whether they may be the least.
shared float page_lse[WEIR_STOP_HEADS * kGroups], page_most[WEIR_STOP_HEADS * kGroups];
shared bool may_be_least[kGroups];
shared float base[WEIR_STOP_HEADS], rest_of[WEIR_STOP_HEADS];
shared uint done_at[WEIR_STOP_HEADS];

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
bool comes_after(uint row, uint rank, uint other, uint other_rank) {
    return rank < other_rank || (rank == other_rank && row > other);
}
bool is_left(uint row, uint rank) { return is_first || comes_after(row, rank, last_row, last_key); }

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

// As many pages as are forced, for all invocations. Nothing has been taken.
void begin_order() {
    uint count = 0u;
    for (uint row = invocation(); row < n; row += kThreads) count += is_forced(row) ? 1u : 0u;
    n_forced_left = workgroup_count(count);
    is_first = true;
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

// The sum of a round's page for the head of each of the first lanes of its group, the first of which is `first_head`.
// By all lanes; has_page is the same for all of a group.
void note_page(uint first_head, uint n_heads, uint own, bool has_page, Page page, float high, float part) {
    const float sum = sum_of_head(part);
    if (has_page && lane() < n_heads)
        page_lse[(first_head + lane()) * kGroups + own] = is_unseen(high) ? kUnseen : high + log_near(sum);
    if (has_page && lane() == 0u) may_be_least[own] = page.len == kPageRows && !is_forced(page.row);
}

// The most that a head's page may have, as a logarithm.
float most_of_page(uint head, uint row, uint len) {
    const float dot = Floats(A.bound).v[head * A.capacity + row];
    return soft_capped(A.scale * dot, A.soft_cap) + log_near(float(len));
}

// With bounds: page_most of the round's `n_round` pages, and in rest_of what the pages that are left behind them may
// have at most together. `high` is that of the head of this invocation.
void bound_rest(Job j, uint first, uint n_round, float high) {
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
    for (uint h = 0u; h < A.heads_per_list; ++h) {
        float sum = 0.0;
        for (uint row = me; row < n; row += kThreads) {
            if (!comes_after(row, rank_of(row), end_row, end_rank)) continue;
            sum += exp_near(most_of_page(j.first_head + h, row, Words(A.len).v[table + row]) - base[h]);
        }
        const float rest = workgroup_sum(sum);
        if (me == 0u) rest_of[h] = rest;
    }
    barrier();
}

// Adds the round's pages, `n_before` of the order come before them, to what a head has seen, and looks after each.
void look(uint head, uint n_before, uint n_round, inout Seen seen) {
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
                others = rest_of[head];
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

// Looks after a round whose pages note_page() has: `n_before` of the order come before it, its first one is
// order[first]. Returns after how many pages all heads were done, whole microbatches, or kNotDone.
uint enough_after(Job j, uint first, uint n_before, uint n_round, inout Seen seen) {
    const uint me = invocation();
    if (!is_null(A.bound)) bound_rest(j, first, n_round, seen.high);
    if (me < A.heads_per_list) {
        look(me, n_before, n_round, seen);
        done_at[me] = seen.done_at;
    }
    barrier();
    uint most = 0u;
    for (uint h = 0u; h < A.heads_per_list; ++h) most = max(most, done_at[h]);
    return most == kNotDone ? most : (most + A.microbatch - 1u) / A.microbatch * A.microbatch;
}

#endif
