#version 460
// Computes: head norms of q and k, their rotation, and appending of k and v to the pages, with kMinMax digests
// (lib/ops/rope_append_ref.cpp).
// Shapes: q, q_sink [n_tok, n_heads, head_dim], k, v [n_tok, n_kv_heads, head_dim], cos_sin [n_tok, rope_dim / 2, 2].
// Launch: a workgroup for each KV head and page that it touches, the only one that writes it, then workgroups with a
// subgroup for each row of q; further ones in steps of the grid.
// Numerics: the reference's roundings in its order. Norms are summed in pairs of f32, so that they round as sums in f64
// do nearly always; squares that exceed f32 make their head NaN.
#extension GL_GOOGLE_include_directive : require
#include "common/exact.glsl"
#include "common/pages.glsl"
#include "common/rotation.glsl"
#include "common/subgroup.glsl"

layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Arguments { RopeArgs a; };
layout(push_constant) uniform Push { Arguments p; };

shared float keys[kPageRows * kMaxChannels];  // rotated

// 1 / sqrt(mean of squares + eps) of the row; all lanes of the subgroup call it with the same.
float inverse_rms(Floats x, uint first) {
    const uint d = p.a.head_dim;
    vec2 sum = vec2(0.0);
    for (uint i = gl_SubgroupInvocationID; i < d; i += gl_SubgroupSize)
        sum = add_pairs(sum, two_product(x.v[first + i], x.v[first + i]));
    for (uint step = 1u; step < gl_SubgroupSize; step *= 2u)
        sum = add_pairs(sum, vec2(subgroupShuffleXor(sum.x, step), subgroupShuffleXor(sum.y, step)));
    precise float high = sum.x / float(d);
    const vec2 whole = two_product(high, float(d));
    precise float low = ((sum.x - whole.x) - whole.y + sum.y) / float(d);
    const vec2 mean = add_pairs(vec2(high, low), vec2(p.a.norm_eps, 0.0));
    // Newton's step with a residue that is exact to twice the digits.
    precise float y = inversesqrt(mean.x);
    const vec2 square = two_product(y, y), product = two_product(mean.x, square.x);
    precise float residue = (1.0 - product.x) - (product.y + mean.x * square.y + mean.y * square.x);
    return abs(residue) < 1.0 ? fma(0.5 * y, residue, y) : y;  // not where the mean is infinite or NaN
}

uvec2 channels_of(uint pair) { return channels_of(pair, p.a.rope_dim, p.a.is_adjacent != 0u); }

vec2 turned(vec2 x, uvec2 cos_sin, uint tok, uint pair) {
    if (pair >= p.a.rope_dim / 2u) return x;
    const uint at = tok * p.a.rope_dim + 2u * pair;
    return turned(x, vec2(Floats(cos_sin).v[at], Floats(cos_sin).v[at + 1u]));
}

// The pair's channels after the norm.
vec2 normed(Floats x, uint first, uvec2 channel, uvec2 weight, float inverse) {
    precise vec2 y = vec2(x.v[first + channel.x], x.v[first + channel.y]);
    if (is_null(weight)) return y;
    y *= inverse;
    y *= vec2(Floats(weight).v[channel.x], Floats(weight).v[channel.y]);
    return y;
}

void rotate_query(uint tok, uint head) {
    Floats q = Floats(p.a.q);
    const uint first = (tok * p.a.n_heads + head) * p.a.head_dim;
    const float inverse = is_null(p.a.q_norm) ? 1.0 : inverse_rms(q, first);
    for (uint pair = gl_SubgroupInvocationID; pair < p.a.head_dim / 2u; pair += gl_SubgroupSize) {
        const uvec2 channel = channels_of(pair);
        const vec2 x = normed(q, first, channel, p.a.q_norm, inverse);
        if (!is_null(p.a.q_sink)) {
            const vec2 sink = turned(x, p.a.cos_sin_sink, tok, pair);
            Floats(p.a.q_sink).v[first + channel.x] = sink.x;
            Floats(p.a.q_sink).v[first + channel.y] = sink.y;
        }
        const vec2 y = turned(x, p.a.cos_sin, tok, pair);
        q.v[first + channel.x] = y.x;
        q.v[first + channel.y] = y.y;
    }
}

// In memory and in `keys`.
void rotate_key(uint tok, uint kv_head, uint key) {
    Floats k = Floats(p.a.k);
    const uint first = (tok * p.a.n_kv_heads + kv_head) * p.a.head_dim;
    const float inverse = is_null(p.a.k_norm) ? 1.0 : inverse_rms(k, first);
    for (uint pair = gl_SubgroupInvocationID; pair < p.a.head_dim / 2u; pair += gl_SubgroupSize) {
        const uvec2 channel = channels_of(pair);
        const vec2 y = turned(normed(k, first, channel, p.a.k_norm, inverse), p.a.cos_sin, tok, pair);
        keys[key * kMaxChannels + channel.x] = k.v[first + channel.x] = y.x;
        keys[key * kMaxChannels + channel.y] = k.v[first + channel.y] = y.y;
    }
}

// Updates a word of the digest, for maximum and minimum: two channels. A page's first token begins them.
void update_digest(uvec2 digest, uint word, uint n, bool begins) {
    const uint low_at = p.a.head_dim / 2u + word;
    uint high = Words(digest).v[word], low = Words(digest).v[low_at];
    for (uint i = 0u; i < n; ++i) {
        const uint key = bf16_pair(keys[i * kMaxChannels + 2u * word], keys[i * kMaxChannels + 2u * word + 1u]);
        digest_key(key, begins && i == 0u, high, low);
    }
    OutWords(digest).v[word] = high;
    OutWords(digest).v[low_at] = low;
}

// The new tokens of the `page`-th page that they touch.
void append(uint kv_head, uint page) {
    const uint d = p.a.head_dim, table = kv_head * p.a.capacity;
    const uint pos = is_null(p.a.n_tokens) ? p.a.pos : Words(p.a.n_tokens).v[0];
    const uint append_row = Words(p.a.append_row).v[kv_head];
    const uint offset = pos - Words(p.a.first_pos).v[table + append_row];  // of the first token
    const uint rows = offset / kPageRows + page, in_page = page == 0u ? offset % kPageRows : 0u;
    const uint tok = page == 0u ? 0u : rows * kPageRows - offset;
    if (tok >= p.a.n_tok) return;  // the same for all invocations
    const uint n = min(p.a.n_tok - tok, kPageRows - in_page);
    barrier();  // the keys of a page before may still be read
    for (uint i = gl_SubgroupID; i < n; i += gl_NumSubgroups) rotate_key(tok + i, kv_head, i);
    barrier();
    const uint at = table + append_row + rows, slot = Words(p.a.slots).v[at];
    OutWords to = OutWords(page_at(p.a.pool, slot, d));
    for (uint i = gl_LocalInvocationID.x; i < n * (d / 2u); i += kInvocations) {
        const uint key = i / (d / 2u), word = i % (d / 2u);
        const uint from = ((tok + key) * p.a.n_kv_heads + kv_head) * d + 2u * word;
        const uint row = (in_page + key) * (d / 2u) + word;
        to.v[row] = bf16_pair(keys[key * kMaxChannels + 2u * word], keys[key * kMaxChannels + 2u * word + 1u]);
        to.v[kPageRows * (d / 2u) + row] = bf16_pair(Floats(p.a.v).v[from], Floats(p.a.v).v[from + 1u]);
    }
    if (is_null(p.a.digests)) return;
    const uvec2 digest = plus(p.a.digests, p.a.digest_by_row != 0u ? at : slot, 4u * d);
    for (uint word = gl_LocalInvocationID.x; word < d / 2u; word += kInvocations)
        update_digest(digest, word, n, in_page == 0u);
}

void main() {
    const uint n_pages = (p.a.n_tok + 2u * kPageRows - 2u) / kPageRows, n_appends = p.a.n_kv_heads * n_pages;
    const uint n_rows = p.a.n_tok * p.a.n_heads;
    const uint n_all = n_appends + (n_rows + gl_NumSubgroups - 1u) / gl_NumSubgroups;
    for (uint i = gl_WorkGroupID.x; i < n_all; i += gl_NumWorkGroups.x) {
        if (i < n_appends) {
            append(i / n_pages, i % n_pages);
        } else {
            const uint row = (i - n_appends) * gl_NumSubgroups + gl_SubgroupID;
            if (row < n_rows) rotate_query(row / p.a.n_heads, row % p.a.n_heads);
        }
    }
}
