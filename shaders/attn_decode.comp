#version 460
// Computes: attention of one query row over the listed KV pages; before it, if asked to, the rotation of the query and
// the appending of the new key and value; after it page masses and stamps (lib/device/kernels.h, AttnDecodeArgs).
// Method: Dao et al., "Flash-Decoding" (splits and their merge).
// Shapes: shaders/decode.h. Launch: x over lists of query heads of one KV head, y over splits of its pages. A group of
// kLanes lanes takes a page at a time, each lane kChunks times 4 channels, with a running softmax of their own; nobody
// waits for others until all pages are done. The last workgroup of a KV head merges the splits in ascending order. How
// n pages are split depends on n alone, so a budget that holds everything gives the bits of dense attention.
// Numerics: f32. A masked token's value is not read: it may be NaN.
#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#define WEIR_ANY_INVOCATIONS
#include "common/decode_merge.glsl"

const uint kTokens = kLanes / kHeads;        // taken at a time: each lane then has one logit of one head
const uint kRowVectors = kTokens * kChunks;  // of a lane
const uint kGroups = kThreads / kLanes;
const uint kUnits = kGroups / kUnitPagesOfSplit;  // that a split has under way

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

Page page_of(Job j, uint listed) {
    Page page;
    page.listed = listed;
    page.exists = listed < j.n;
    const uint last = A.capacity - 1u, at = min(listed, last);
    page.row = is_null(A.select) ? at : min(Words(A.select).v[j.select_list * A.capacity + at], last);
    page.first_pos = Words(A.first_pos).v[j.table + page.row];
    page.len = Words(A.len).v[j.table + page.row];
    page.address = page_at(A.pool, Words(A.slots).v[j.table + page.row], A.head_dim);
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

// The pages of a split are those of every n_splits-th unit; its groups take kUnits of these at a time.
uint listed_at(Job j, uint turn) {
    const uint unit = turn * kUnits + group() / kUnitPagesOfSplit;
    return (unit * A.n_splits + j.split) * kUnitPagesOfSplit + group() % kUnitPagesOfSplit;
}

// A page's mass is left as a logarithm.
void write_mass(Job j, Page page, float own, float high) {
    const float sum = sum_of_head(own);
    if (page.exists && lane() < A.heads_per_list)
        SharedFloats(A.page_mass).v[(j.first_head + lane()) * A.capacity + page.listed] =
            sum == 0.0 ? kUnseen : high + log_near(sum);
}

// `keys` and `values` are those of the first page's first tokens. Those that come next are loaded as soon as the ones
// at hand were used. The loops are not unrolled: code that does not fit the caches beside the other kernels' is loaded
// again in each layer, which took 25 us of them.
void attend(Job j, Page page, uvec2 keys[kRowVectors], uvec2 values[kRowVectors], out Attended a) {
    [[unroll]] for (uint i = 0u; i < kVectors; ++i) a.value[i] = vec4(0.0);
    a.high = kUnseen;
    a.sum = 0.0;
    vec4 q[kVectors];
    load_queries(q);
    [[dont_unroll]] for (uint turn = 1u;; ++turn) {
        // Of the subgroup's pages none exists any more.
        if (subgroupMax(page.exists ? 1u : 0u) == 0u) break;
        const Page next = page_of(j, listed_at(j, turn));
        float page_sum = 0.0;
        [[dont_unroll]] for (uint first = 0u; first < kPageRows; first += kTokens) {
            const bool ends = first + kTokens == kPageRows;
            Page coming = page;
            if (ends) coming = next;
            const uint from = ends ? 0u : first + kTokens;
            float weight = logit_of(j, page, first, keys, q);
            load_rows(coming, from, keys);
            page_sum = page_sum * weigh(weight, a) + weight;
            add_values(j, page, first, values, weight, a);
            load_rows(coming, kPageRows + from, values);
        }
        if (kHasMasses) write_mass(j, page, page_sum, a.high);
        page = next;
    }
    a.sum = sum_of_head(a.sum);
}

// The groups' maxima and sums become the workgroup's; a subgroup's values are added up.
void merge_groups(Job j, inout Attended a) {
    const uint head = lane() % kHeads, first_lane = gl_SubgroupInvocationID - lane();
    if (lane() < kHeads) {
        group_high[lane() * kGroups + group()] = a.high;
        group_sum[lane() * kGroups + group()] = a.sum;
    }
    barrier();
    float high = kUnseen;
    for (uint g = lane() / kHeads; g < kGroups; g += kTokens) high = larger(group_high[head * kGroups + g], high);
    high = most_of_head(high);
    const float shrink = is_unseen(a.high) ? 0.0 : exp_near(a.high - high);
    float sum = 0.0;
    for (uint g = lane() / kHeads; g < kGroups; g += kTokens) {
        const float own = group_high[head * kGroups + g];
        sum += is_unseen(own) ? 0.0 : group_sum[head * kGroups + g] * exp_near(own - high);
    }
    sum = sum_of_head(sum);
    if (group() == 0u && lane() < kHeads) {
        head_high[lane()] = high;
        head_sum[lane()] = sum;
    }
    [[unroll]] for (uint h = 0u; h < kHeads; ++h) {
        const float by = subgroupShuffle(shrink, first_lane + h);
        [[unroll]] for (uint k = 0u; k < kChunks; ++k) {
            vec4 x = a.value[h * kChunks + k] * by;
            for (uint i = kLanes; i < gl_SubgroupSize; i *= 2u) x += subgroupShuffleXor(x, i);
            a.value[h * kChunks + k] = x;
        }
    }
}

// Adds up the subgroups, and writes the workgroup's part; as many vectors of all lanes at a time as have room.
void write_part(Job j, Attended a) {
    const uint d = A.head_dim, width = gl_NumSubgroups * kLanes, at_once = kGathered / width;
    const uint part = values_at(j.list, j.split), sums = sums_at(j.list, j.split);
    const uint me = gl_LocalInvocationID.x;
    for (uint first = 0u; first < kVectors; first += at_once) {
        barrier();  // what was gathered before has been read
        [[unroll]] for (uint i = 0u; i < kVectors; ++i) {
            if (i >= first && i < first + at_once && gl_SubgroupInvocationID < kLanes)
                gathered[(i - first) * width + gl_SubgroupID * kLanes + lane()] = a.value[i];
        }
        barrier();
        for (uint at = me; at < min(at_once, kVectors - first) * kLanes; at += kThreads) {
            const uint i = first + at / kLanes, head = i / kChunks;
            const uint vector = at % kLanes + i % kChunks * kLanes;
            vec4 sum = vec4(0.0);
            for (uint s = 0u; s < gl_NumSubgroups; ++s) sum += gathered[(i - first) * width + s * kLanes + at % kLanes];
            if (head < A.heads_per_list && vector < d / 4u)
                SharedVectors(A.partial).v[part + head * d / 4u + vector] = sum;
        }
    }
    if (me >= A.heads_per_list) return;
    SharedFloats(A.partial).v[sums + 2u * me] = head_high[me];
    SharedFloats(A.partial).v[sums + 2u * me + 1u] = head_sum[me];
}

void main() {
    A = p.args;
    Job j = find_job();
    load_inputs(j);
    complete(j);
    if (j.split >= j.n_active) return;
    Page page = page_of(j, listed_at(j, 0u));
    uvec2 keys[kRowVectors], values[kRowVectors];
    load_rows(page, 0u, keys);
    load_rows(page, kPageRows, values);
    barrier();
    prepare_token(j);
    Attended a;
    attend(j, page, keys, values, a);
    store_token(j);
    merge_groups(j, a);
    write_part(j, a);
    merge_parts(j);
}
