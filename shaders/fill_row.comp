#version 460
// Computes: noise in the pages of one table row of every stream, with the exponents of a model's keys and values: sums
// of four uniform numbers, so that about 2.7 bits of each exponent are news. Or, with digests, those of these pages.
// Shapes: slots [n_streams], pages [n_streams, page] like the pool's, digests by row. Launch: a workgroup for each
// stream, further ones in steps of the grid.
#extension GL_GOOGLE_include_directive : require
#include "common/wide.glsl"
#include "moves.h"

layout(push_constant, std430) uniform Push { FillRowPush a; };

#include "common/digest.glsl"

// The finaliser of splitmix64 (Steele, Lea, Flood, 2014).
uvec2 mixed(uvec2 z) {
    z = wide_product(wide_xor_shifted(z, 30u), uvec2(0x1CE4E5B9u, 0xBF58476Du));
    z = wide_product(wide_xor_shifted(z, 27u), uvec2(0x133111EBu, 0x94D049BBu));
    return wide_xor_shifted(z, 31u);
}

// The noise that is the page's element i.
float noise(uint stream, uint i) {
    const uint n = 2u * kPageRows * a.head_dim;
    const uvec2 number = wide_sum(wide_product(wide(stream), wide(n)), wide(i + 1u));
    const uvec2 z = mixed(wide_sum(uvec2(a.seed_low, a.seed_high),
                                   wide_product(number, uvec2(0x7F4A7C15u, 0x9E3779B9u))));
    const uint sum = (z.x & 0xFFFFu) + (z.x >> 16) + (z.y & 0xFFFFu) + (z.y >> 16);
    return (float(sum) * (1.0 / 65536.0) - 2.0) * (i % 3u == 0u ? 0.5 : i % 3u == 1u ? 1.0 : 2.0);
}

void main() {
    const uint n_words = kPageRows * a.head_dim;
    for (uint s = gl_WorkGroupID.x; s < a.n_streams; s += gl_NumWorkGroups.x) {
        const uvec2 page = page_at(a.pool, Words(a.slots).v[s], a.head_dim);
        if (is_null(a.digests)) {
            const uvec2 copied = plus(a.pages, s, 4u * n_words);
            for (uint i = gl_LocalInvocationID.x; i < n_words; i += kInvocations) {
                const uint word = bf16_pair(noise(s, 2u * i), noise(s, 2u * i + 1u));
                OutWords(page).v[i] = word;
                OutWords(copied).v[i] = word;
            }
        } else if (Words(a.window).v[s] == 0u) {
            const uint row = Words(a.row_begin).v[s] + a.row;
            digest_page(Words(page), kPageRows, OutWords(plus(a.digests, row, 4u * words_of_digest())));
        }
    }
}
