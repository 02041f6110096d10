// Sums of the keys and values that leave the streams with windows of their own: token by token, in f32, so that they
// have the bits of the host's (lib/kv/left_sums.h). Executed by one whole subgroup, which alone has the stream.
#ifndef WEIR_LEFT_GLSL
#define WEIR_LEFT_GLSL
#include "common/pages.glsl"
#include "common/victim.glsl"

// Whether the stream's layer has a window; global_every as in KvTables.
bool is_local(uint stream, uint n_kv_heads, uint global_every) {
    return global_every != 0u && (stream / n_kv_heads + 1u) % global_every != 0u;
}

// The number of a stream among those that have a window of their own.
uint left_rank(TablesAt t, uint stream, uint n_kv_heads, uint global_every) {
    uint n = 0u;
    for (uint s = gl_SubgroupInvocationID; s < stream; s += gl_SubgroupSize)
        n += SharedCells(t.window).v[s] != 0u && !is_local(s, n_kv_heads, global_every) ? 1u : 0u;
    return subgroupAdd(n);
}

// Adds the tokens of a row's page. A word has two channels.
void add_left_page(TablesAt t, LeftAt left, uint rank, Stream s, uint row) {
    const uint d = left.head_dim, len = word_of(t.len, s, row);
    const uvec2 page = page_at(left.pool, word_of(t.slots, s, row), d);
    for (uint w = gl_SubgroupInvocationID; w < d; w += gl_SubgroupSize) {
        const uint column = w < d / 2u ? w : kPageRows * (d / 2u) + (w - d / 2u), at = rank * 2u * d + 2u * w;
        precise float low = SharedFloats(left.values).v[at], high = SharedFloats(left.values).v[at + 1u];
        for (uint token = 0u; token < len; ++token) {
            const uint word = Words(page).v[token * (d / 2u) + column];
            low += low_bf16(word);
            high += high_bf16(word);
        }
        SharedFloats(left.values).v[at] = low;
        SharedFloats(left.values).v[at + 1u] = high;
    }
    if (gl_SubgroupInvocationID != 0u) return;
    SharedCells(left.sums).v[2u * rank] += len;
    SharedCells(left.sums).v[2u * rank + 1u] = word_of(t.first_pos, s, row) + len;
}

#endif
