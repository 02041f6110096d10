#version 460
// Computes: attention of many rows over all pages by cooperative matrices (lib/ops/attn_paged_ref.cpp, whole).
// Shapes: AttnArgs says them; heads of 16 * kParts channels. The pairs of a list are its heads for each row of q:
// pair p is head p % n of row p / n.
// Launch: a workgroup of four subgroups of 32 lanes for each kPairs pairs along x, those that see most first; a list
// along y. A subgroup has 16 pairs. The tokens pass twice: first maxima and sums of the softmax are found, then the
// values are added up with their weights, so that nothing that was added has to be scaled again.
// Numerics: keys and values in f16, which holds the digits of bf16, queries and weights as sums of two f16, sums in
// f32. Queries, keys and values are divided by 16, so that they may be a million; weights are multiplied by 4,096. A
// row has the same bits whatever other rows there are.
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#define WEIR_ANY_INVOCATIONS
#include "common/pages.glsl"
#include "common/team.glsl"

layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Arguments { AttnArgs args; };
layout(push_constant) uniform Push { Arguments p; };
AttnArgs A;

layout(constant_id = 2) const uint kParts = 8;  // of 16 channels

const uint kSide = 16u, kSubgroups = kPromptPairs / kSide;
const uint kTile = 2u * kPageRows;  // tokens at a time
const uint kEights = 2u * kParts;   // of a row, 8 numbers of f16
// Rows in shared memory lie further apart, so that their beginnings are in different banks.
const uint kRowStride = kEights + 1u, kLogitStride = kTile + 4u, kWeightStride = kTile / 8u + 1u;
const uint kRoundPages = kSubgroups * 32u;  // listed pages whose tables are read at once
// Factors of queries, keys and values, and of weights: those of 1/65536 of the largest are normal numbers of f16.
const float kShrink = 1.0 / 16.0, kGrow = 4096.0;

shared uvec4 key_tile[kTile * kRowStride], value_tile[kTile * kRowStride];
shared float logits[kSubgroups * kSide * kLogitStride];
shared uvec4 weights[kSubgroups * kSide * kWeightStride], low_weights[kSubgroups * kSide * kWeightStride];
shared float factors[kPromptPairs];
// The round's pages: position, tokens (0: none is seen) and slot.
shared uint first_pos[kRoundPages], len[kRoundPages], slot[kRoundPages];

#define A_MATRIX coopmat<float16_t, gl_ScopeSubgroup, kSide, kSide, gl_MatrixUseA>
#define B_MATRIX coopmat<float16_t, gl_ScopeSubgroup, kSide, kSide, gl_MatrixUseB>
#define SUMS coopmat<float, gl_ScopeSubgroup, kSide, kSide, gl_MatrixUseAccumulator>

uint list, kv_head, first_pair, n_pairs, group;
uint window, n_sink;
uint low_pos, high_pos;  // of the workgroup's rows
// This lane's row, of which it has half of a tile's tokens.
uint own_row, own_half;
Sight sight;
float high, sum;

void subgroup_barrier() {
    controlBarrier(gl_ScopeSubgroup, gl_ScopeSubgroup, gl_StorageSemanticsShared, gl_SemanticsAcquireRelease);
}

uint me() { return gl_SubgroupID * 32u + gl_SubgroupInvocationID; }

uvec4 halves(vec4 a, vec4 b) {
    return uvec4(packHalf2x16(a.xy), packHalf2x16(a.zw), packHalf2x16(b.xy), packHalf2x16(b.zw));
}

// What rounding to f16 takes from numbers.
vec4 rest(vec4 a) { return a - vec4(unpackHalf2x16(packHalf2x16(a.xy)), unpackHalf2x16(packHalf2x16(a.zw))); }

// Where pair `pair` of the list is in q and in the output, in elements.
uint row_at(uint pair) { return (pair / group * A.n_heads + list * group + pair % group) * A.head_dim; }

// Queries pass through the tile of keys, and what f16 has no digits for through that of values, two subgroups' at a
// time.
void load_queries(out A_MATRIX q[kParts], out A_MATRIX q_low[kParts]) {
    [[unroll]] for (uint half_of = 0u; half_of < kSubgroups / 2u; ++half_of) {
        barrier();
        for (uint at = me(); at < 2u * kSide * kEights; at += kRoundPages) {
            const uint row = at / kEights, eight = at % kEights;
            const uint pair = min(first_pair + half_of * 2u * kSide + row, n_pairs - 1u);
            const uint from = row_at(pair) / 4u + 2u * eight;
            const vec4 a = kShrink * Vectors(A.q).v[from], b = kShrink * Vectors(A.q).v[from + 1u];
            key_tile[row * kRowStride + eight] = halves(a, b);
            value_tile[row * kRowStride + eight] = halves(rest(a), rest(b));
        }
        barrier();
        if (gl_SubgroupID / 2u == half_of) {
            [[unroll]] for (uint i = 0u; i < kParts; ++i) {
                const uint at = gl_SubgroupID % 2u * kSide * kRowStride + 2u * i;
                coopMatLoad(q[i], key_tile, at, kRowStride, gl_CooperativeMatrixLayoutRowMajor);
                coopMatLoad(q_low[i], value_tile, at, kRowStride, gl_CooperativeMatrixLayoutRowMajor);
            }
        }
    }
}

// Whether any of the workgroup's rows may see a token.
bool any_sees(uint token) {
    if (token > high_pos) return false;
    return window == 0u || token < n_sink || token + window > low_pos;
}

void read_tables(uint first, uint n) {
    barrier();  // those before are still read
    const uint i = me();
    if (i < n) {
        const uint table = kv_head * A.capacity + first + i;
        const uint begin = Words(A.first_pos).v[table], size = Words(A.len).v[table];
        const bool is_seen =
            size != 0u && begin <= high_pos && (begin < n_sink || any_sees(min(begin + size - 1u, high_pos)));
        first_pos[i] = begin;
        len[i] = is_seen ? size : 0u;
        slot[i] = Words(A.slots).v[table];
    }
    barrier();
}

// Keys or values (from row kPageRows on) of two pages as f16; 0 for tokens that no row sees.
uvec4 half_quad(uint page, uint n, uint token, uint from, uint eight) {
    if (page >= n || token >= len[page] || !any_sees(first_pos[page] + token)) return uvec4(0u);
    const uvec4 quad = Quads(page_at(A.pool, slot[page], A.head_dim)).v[(from + token) * kEights + eight];
    return halves(kShrink * bf16x4(quad.xy), kShrink * bf16x4(quad.zw));
}

void stage(uint page, uint n, bool with_values) {
    barrier();  // the tile before is still read
    for (uint at = me(); at < kTile * kEights; at += kRoundPages) {
        const uint row = at / kEights, eight = at % kEights, token = row % kPageRows;
        key_tile[row * kRowStride + eight] = half_quad(page + row / kPageRows, n, token, 0u, eight);
        if (with_values)
            value_tile[row * kRowStride + eight] = half_quad(page + row / kPageRows, n, token, kPageRows, eight);
    }
    barrier();
}

// The subgroup's logits, without scale, come to shared memory.
void multiply_keys(A_MATRIX q[kParts], A_MATRIX q_low[kParts]) {
    const uint to = gl_SubgroupID * kSide * kLogitStride;
    [[unroll]] for (uint j = 0u; j < kTile / kSide; ++j) {
        SUMS s = SUMS(0.0);
        [[unroll]] for (uint i = 0u; i < kParts; ++i) {
            B_MATRIX k;
            coopMatLoad(k, key_tile, j * kSide * kRowStride + 2u * i, kRowStride,
                        gl_CooperativeMatrixLayoutColumnMajor);
            s = coopMatMulAdd(q[i], k, s);
            s = coopMatMulAdd(q_low[i], k, s);
        }
        coopMatStore(s, logits, to + j * kSide, kLogitStride, gl_CooperativeMatrixLayoutRowMajor);
    }
    subgroup_barrier();
}

// The lane's logits of a tile: of one page, for one row.
void read_logits(uint page, uint n, out float x[kSide]) {
    const uint from = (gl_SubgroupID * kSide + own_row) * kLogitStride + own_half * kSide, at = page + own_half;
    const uint size = at < n ? len[at] : 0u, begin = at < n ? first_pos[at] : 0u;
    const float scale = A.scale / (kShrink * kShrink);
    [[unroll]] for (uint j = 0u; j < kSide; ++j)
        x[j] = j < size && sees(sight, begin + j) ? soft_capped(scale * logits[from + j], A.soft_cap) : kUnseen;
}

bool is_unseen(float x) { return floatBitsToUint(x) == 0xFF800000u; }

void count_tile(uint page, uint n) {
    float x[kSide];
    read_logits(page, n, x);
    float most = high;
    [[unroll]] for (uint j = 0u; j < kSide; ++j) most = max(most, x[j]);
    if (is_unseen(most)) return;
    sum *= is_unseen(high) ? 0.0 : exp(high - most);
    [[unroll]] for (uint j = 0u; j < kSide; ++j) sum += is_unseen(x[j]) ? 0.0 : exp(x[j] - most);
    high = most;
}

void add_tile(uint page, uint n, inout SUMS values[kParts]) {
    float x[kSide];
    read_logits(page, n, x);
    [[unroll]] for (uint j = 0u; j < kSide; ++j) x[j] = is_unseen(x[j]) ? 0.0 : kGrow * exp(x[j] - high);
    const uint to = (gl_SubgroupID * kSide + own_row) * kWeightStride + 2u * own_half;
    [[unroll]] for (uint half_of = 0u; half_of < 2u; ++half_of) {
        const uint j = 8u * half_of;
        const vec4 a = vec4(x[j], x[j + 1u], x[j + 2u], x[j + 3u]);
        const vec4 b = vec4(x[j + 4u], x[j + 5u], x[j + 6u], x[j + 7u]);
        weights[to + half_of] = halves(a, b);
        low_weights[to + half_of] = halves(rest(a), rest(b));
    }
    subgroup_barrier();
    [[unroll]] for (uint j = 0u; j < kTile / kSide; ++j) {
        A_MATRIX w, low;
        const uint from = gl_SubgroupID * kSide * kWeightStride + 2u * j;
        coopMatLoad(w, weights, from, kWeightStride, gl_CooperativeMatrixLayoutRowMajor);
        coopMatLoad(low, low_weights, from, kWeightStride, gl_CooperativeMatrixLayoutRowMajor);
        [[unroll]] for (uint i = 0u; i < kParts; ++i) {
            B_MATRIX v;
            coopMatLoad(v, value_tile, j * kSide * kRowStride + 2u * i, kRowStride, gl_CooperativeMatrixLayoutRowMajor);
            values[i] = coopMatMulAdd(w, v, values[i]);
            values[i] = coopMatMulAdd(low, v, values[i]);
        }
    }
}

// Both halves of a row, and the sink; the row's log-sum-exp.
void finish_softmax(uint pair) {
    const float most = max(high, subgroupShuffleXor(high, 1u));
    sum *= is_unseen(high) ? 0.0 : exp(high - most);
    sum += subgroupShuffleXor(sum, 1u);
    high = most;
    const uint head = list * group + pair % group;
    const float sink = is_null(A.sinks) ? kUnseen : Floats(A.sinks).v[head], all = max(high, sink);
    float factor = 0.0, lse = kUnseen;
    if (!is_unseen(all)) {
        const float own = is_unseen(high) ? 0.0 : exp_near(high - all);
        const float total = sum * own + (is_null(A.sinks) ? 0.0 : exp_near(sink - all));
        factor = own / total;
        lse = all + log_near(total);
    }
    if (own_half != 0u) return;
    factors[gl_SubgroupID * kSide + own_row] = factor / (kShrink * kGrow);
    if (!is_null(A.lse) && pair < n_pairs) Floats(A.lse).v[pair / group * A.n_heads + head] = lse;
}

void write_values(SUMS values[kParts]) {
    const uint from = gl_SubgroupID * kSide * kLogitStride;
    [[unroll]] for (uint i = 0u; i < kParts; ++i) {
        subgroup_barrier();
        coopMatStore(values[i], logits, from, kLogitStride, gl_CooperativeMatrixLayoutRowMajor);
        subgroup_barrier();
        for (uint e = gl_SubgroupInvocationID; e < kSide * kSide; e += 32u) {
            const uint row = e / kSide, pair = first_pair + gl_SubgroupID * kSide + row;
            if (pair < n_pairs)
                Floats(A.result).v[row_at(pair) + i * kSide + e % kSide] =
                    factors[gl_SubgroupID * kSide + row] * logits[from + row * kLogitStride + e % kSide];
        }
    }
}

void main() {
    A = p.args;
    list = kv_head = gl_WorkGroupID.y;
    group = A.n_heads / A.n_lists;
    n_pairs = A.n_tok * group;
    first_pair = (gl_NumWorkGroups.x - 1u - gl_WorkGroupID.x) * kPromptPairs;
    window = A.window;
    n_sink = A.n_sink;
    if (!is_null(A.head_windows)) {
        const uint own = Words(A.head_windows).v[kv_head];
        if (own != 0u) {
            window = own;
            n_sink = A.head_sinks;
        }
    }
    low_pos = A.pos + first_pair / group;
    high_pos = A.pos + (min(first_pair + kPromptPairs, n_pairs) - 1u) / group;
    own_row = gl_SubgroupInvocationID / 2u;
    own_half = gl_SubgroupInvocationID % 2u;
    const uint pair = first_pair + gl_SubgroupID * kSide + own_row;
    sight = sight_of(A.pos + min(pair, n_pairs - 1u) / group, window, n_sink);
    high = kUnseen;
    sum = 0.0;
    A_MATRIX q[kParts], q_low[kParts];
    load_queries(q, q_low);
    SUMS values[kParts];
    [[unroll]] for (uint i = 0u; i < kParts; ++i) values[i] = SUMS(0.0);
    const uint n_pages = Words(A.n_pages).v[kv_head];
    [[dont_unroll]] for (uint pass = 0u; pass < 2u; ++pass) {
        for (uint first = 0u; first < n_pages; first += kRoundPages) {
            const uint n = min(n_pages - first, kRoundPages);
            read_tables(first, n);
            for (uint page = 0u; page < n; page += 2u) {
                if (len[page] == 0u && (page + 1u == n || len[page + 1u] == 0u)) continue;
                stage(page, n, pass == 1u);
                multiply_keys(q, q_low);
                if (pass == 0u) {
                    count_tile(page, n);
                } else {
                    add_tile(page, n, values);
                }
            }
        }
        if (pass == 0u) finish_softmax(pair);
    }
    write_values(values);
}
