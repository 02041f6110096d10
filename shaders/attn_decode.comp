#version 460
// Computes: attention of one query row over the listed KV pages; before it, if asked to, the rotation of the query and
// the appending of the new key and value; after it page masses and stamps (lib/device/kernels/attn_decode.h).
// Method: Dao et al., "Flash-Decoding" (splits and their merge).
// Shapes: shaders/decode.h. Launch: x over lists of query heads of one KV head, y over splits of its pages. A group of
// kLanes lanes takes a page at a time, each lane kChunks times 4 channels, with a running softmax of their own; nobody
// waits for others until all pages are done. The last workgroup of a KV head merges the splits in ascending order. How
// n pages are split depends on n alone, so a budget that holds everything gives the bits of dense attention.
// Numerics: f32. A masked token's value is not read: it may be NaN.
#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#define WEIR_ANY_INVOCATIONS
#include "common/decode_attend.glsl"

const uint kUnits = kGroups / kUnitPagesOfSplit;  // that a split has under way

Page page_of(Job j, uint listed) {
    const uint last = A.capacity - 1u, at = min(listed, last);
    const uint row = is_null(A.select) ? at : min(Words(A.select).v[j.select_list * A.capacity + at], last);
    return page_in_row(j, row, listed, listed < j.n);
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
        // No page of the subgroup exists any more.
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
    if (A.only_windows != 0u && !j.has_window) return;
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
