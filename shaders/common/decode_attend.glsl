// Attention over one page after another by groups of lanes, each with a running softmax of its own: a lane has kChunks
// times 4 channels of the heads' queries and of what the group has attended.
#ifndef WEIR_DECODE_ATTEND_GLSL
#define WEIR_DECODE_ATTEND_GLSL
#include "common/decode_merge.glsl"

const uint kTokens = kLanes / kHeads;        // taken at a time: each lane then has one logit of one head
const uint kRowVectors = kTokens * kChunks;  // of a lane
const uint kGroups = kThreads / kLanes;

uint lane() { return gl_SubgroupInvocationID % kLanes; }
uint group() { return gl_SubgroupID * (gl_SubgroupSize / kLanes) + gl_SubgroupInvocationID / kLanes; }

shared float group_high[kHeads * kGroups], group_sum[kHeads * kGroups];

// A page of the list, as its group of lanes sees it. What the tables say is loaded whether it exists or not, so that no
// load waits for the number of pages.
struct Page {
    uint listed, row, first_pos, len;
    uvec2 address;
    bool exists;
};

Page page_in_row(Job j, uint row, uint listed, bool exists) {
    Page page;
    page.listed = listed;
    page.exists = exists;
    page.row = row;
    page.first_pos = Words(A.first_pos).v[j.table + row];
    page.len = Words(A.len).v[j.table + row];
    page.address = page_at(A.pool, Words(A.slots).v[j.table + row], A.head_dim);
    return page;
}

// Keys (from 0) or values (from kPageRows) of kTokens tokens.
void load_rows(Page page, uint from, out uvec2 rows[kRowVectors]) {
    const uint n_chunks = A.head_dim / 4u;
    [[unroll]] for (uint t = 0u; t < kTokens; ++t) {
        [[unroll]] for (uint k = 0u; k < kChunks; ++k) {
            const uint c = lane() + k * kLanes;
            rows[t * kChunks + k] = uvec2(0u);
            if (page.exists && c < n_chunks) rows[t * kChunks + k] = PairsOf(page.address).v[(from + t) * n_chunks + c];
        }
    }
}

// A lane's channels of the heads' queries.
void load_queries(out vec4 q[kVectors]) {
    const uint n_chunks = A.head_dim / 4u;
    [[unroll]] for (uint h = 0u; h < kHeads; ++h) {
        [[unroll]] for (uint k = 0u; k < kChunks; ++k) {
            const uint c = lane() + k * kLanes;
            q[h * kChunks + k] = c < n_chunks ? queries[h * n_chunks + c] : vec4(0.0);
        }
    }
}

// Sums of kLanes numbers each over the lanes of a group; lane i gets the i-th sum. Each step halves the numbers.
float sum_of_lane(inout float v[32]) {
    const uint i = lane();
    if (kLanes == 32u) {
        [[unroll]] for (uint k = 0u; k < 16u; ++k) {
            const bool upper = (i & 16u) != 0u;
            v[k] = (upper ? v[k + 16u] : v[k]) + subgroupShuffleXor(upper ? v[k] : v[k + 16u], 16u);
        }
    }
    if (kLanes >= 16u) {
        [[unroll]] for (uint k = 0u; k < 8u; ++k) {
            const bool upper = (i & 8u) != 0u;
            v[k] = (upper ? v[k + 8u] : v[k]) + subgroupShuffleXor(upper ? v[k] : v[k + 8u], 8u);
        }
    }
    [[unroll]] for (uint k = 0u; k < 4u; ++k) {
        const bool upper = (i & 4u) != 0u;
        v[k] = (upper ? v[k + 4u] : v[k]) + subgroupShuffleXor(upper ? v[k] : v[k + 4u], 4u);
    }
    [[unroll]] for (uint k = 0u; k < 2u; ++k) {
        const bool upper = (i & 2u) != 0u;
        v[k] = (upper ? v[k + 2u] : v[k]) + subgroupShuffleXor(upper ? v[k] : v[k + 2u], 2u);
    }
    const bool upper = (i & 1u) != 0u;
    return (upper ? v[1] : v[0]) + subgroupShuffleXor(upper ? v[0] : v[1], 1u);
}

// Over the lanes of a group that have the same head.
float most_of_head(float x) {
    if (kHeads < 2u) x = larger(subgroupShuffleXor(x, 1u), x);
    if (kHeads < 4u) x = larger(subgroupShuffleXor(x, 2u), x);
    if (kHeads < 8u) x = larger(subgroupShuffleXor(x, 4u), x);
    if (kLanes >= 16u) x = larger(subgroupShuffleXor(x, 8u), x);
    return kLanes == 32u ? larger(subgroupShuffleXor(x, 16u), x) : x;
}
float sum_of_head(float x) {
    if (kHeads < 2u) x += subgroupShuffleXor(x, 1u);
    if (kHeads < 4u) x += subgroupShuffleXor(x, 2u);
    if (kHeads < 8u) x += subgroupShuffleXor(x, 4u);
    if (kLanes >= 16u) x += subgroupShuffleXor(x, 8u);
    return kLanes == 32u ? x + subgroupShuffleXor(x, 16u) : x;
}

// What a group has attended: of all heads the lane's channels, of one head the maximum, and what the lane's own logits
// have of its sum.
struct Attended {
    vec4 value[kVectors];
    float high, sum;
};

// In the same order everywhere, so that a sink query that is turned as the query gives the same bits.
float add_dot(float sum, vec4 x, vec4 y) { return fma(x.w, y.w, fma(x.z, y.z, fma(x.y, y.y, fma(x.x, y.x, sum)))); }

// The logit of one token for one head by the lane alone, added up as sum_of_lane() does.
float sink_sum(Page page, bool is_new, uint in_page, uint head) {
    const uint n_chunks = A.head_dim / 4u;
    float parts[kLanes];
    [[dont_unroll]] for (uint i = 0u; i < kLanes; ++i) {
        float sum = 0.0;
        for (uint c = i; c < n_chunks; c += kLanes) {
            uvec2 key = PairsOf(page.address).v[in_page * n_chunks + c];
            if (is_new) key = key_words[c];
            sum = add_dot(sum, bf16x4(key), sink_queries[head * n_chunks + c]);
        }
        parts[i] = sum;
    }
    [[dont_unroll]] for (uint n = kLanes / 2u; n > 0u; n /= 2u) {
        [[dont_unroll]] for (uint i = 0u; i < n; ++i) parts[i] += parts[i + n];
    }
    return parts[0];
}

// The lane's logit of those of `first` and the tokens after it, from their keys.
float logit_of(Job j, Page page, uint first, uvec2 keys[kRowVectors], vec4 q[kVectors]) {
    const bool has_new = page.row == j.new_row && page.exists;
    const uint n_chunks = A.head_dim / 4u, new_token = has_new ? j.pos - page.first_pos - first : kPageRows;
    float v[32];
    [[unroll]] for (uint t = 0u; t < kTokens; ++t) {
        float dots[kHeads];
        [[unroll]] for (uint h = 0u; h < kHeads; ++h) dots[h] = 0.0;
        [[unroll]] for (uint k = 0u; k < kChunks; ++k) {
            uvec2 key = keys[t * kChunks + k];
            if (t == new_token) key = key_words[min(lane() + k * kLanes, n_chunks - 1u)];
            const vec4 elements = bf16x4(key);
            [[unroll]] for (uint h = 0u; h < kHeads; ++h) dots[h] = add_dot(dots[h], elements, q[h * kChunks + k]);
        }
        [[unroll]] for (uint h = 0u; h < kHeads; ++h) v[t * kHeads + h] = dots[h];
    }
    float sum = sum_of_lane(v);
    const uint own = lane() / kHeads, in_page = first + own, pos = page.first_pos + in_page;
    if (!page.exists || in_page >= page.len || !sees(j.sight, pos)) return kUnseen;
    if (kHasSinkQuery && page.row < A.n_sink_pages && (j.window == 0u || pos < j.n_sink))
        sum = sink_sum(page, own == new_token, in_page, lane() % kHeads);
    return soft_capped(A.scale * sum, A.soft_cap);
}

// The logit becomes a weight. Returns what is left of a sum before it.
float weigh(inout float logit, inout Attended a) {
    const float most = larger(a.high, most_of_head(logit));
    const float shrink = is_unseen(a.high) ? 0.0 : exp_near(a.high - most);
    logit = is_unseen(logit) ? 0.0 : exp_near(logit - most);
    a.high = most;
    a.sum = a.sum * shrink + logit;
    const uint first_lane = gl_SubgroupInvocationID - lane();
    [[unroll]] for (uint h = 0u; h < kHeads; ++h) {
        const float by = subgroupShuffle(shrink, first_lane + h);
        [[unroll]] for (uint k = 0u; k < kChunks; ++k) a.value[h * kChunks + k] *= by;
    }
    return shrink;
}

void add_values(Job j, Page page, uint first, uvec2 values[kRowVectors], float weight, inout Attended a) {
    const uint n_chunks = A.head_dim / 4u, first_lane = gl_SubgroupInvocationID - lane();
    const bool has_new = page.row == j.new_row && page.exists;
    const uint new_token = has_new ? j.pos - page.first_pos - first : kPageRows;
    [[unroll]] for (uint t = 0u; t < kTokens; ++t) {
        // A token that nobody sees may have values that are no numbers.
        const bool seen = first + t < page.len && sees(j.sight, page.first_pos + first + t);
        float by[kHeads];
        [[unroll]] for (uint h = 0u; h < kHeads; ++h) by[h] = subgroupShuffle(weight, first_lane + t * kHeads + h);
        [[unroll]] for (uint k = 0u; k < kChunks; ++k) {
            uvec2 value = seen ? values[t * kChunks + k] : uvec2(0u);
            if (t == new_token) value = value_words[min(lane() + k * kLanes, n_chunks - 1u)];
            const vec4 elements = bf16x4(value);
            [[unroll]] for (uint h = 0u; h < kHeads; ++h) a.value[h * kChunks + k] += by[h] * elements;
        }
    }
}

#endif
