// Products of a row of weights with some rows of x. weight_type.glsl is the quant/<type>.glsl that the shader is
// compiled for.
#ifndef WEIR_DOT_ROW_GLSL
#define WEIR_DOT_ROW_GLSL
#include "common/subgroup.glsl"
#include "weight_type.glsl"

// Rows of x in one pass, at most kMostColumns.
layout(constant_id = 0) const uint kColumns = 1;

// sum[c]: row `row` of the matrix times row first + c of x, for rows below n_tok. Each lane takes every so many groups
// of 8 weights; its sum and the subgroup's are the same whatever other rows of x there are.
void dot_row(uvec2 w, uint n, uint n_blocks, uint row, uvec2 x_at, uint first, uint n_tok,
             out float sum[kMostColumns]) {
    Vectors x = Vectors(x_at);
    for (uint c = 0u; c < kColumns; ++c) sum[c] = 0.0;
    for (uint i = gl_SubgroupInvocationID; i < 4u * n_blocks; i += gl_SubgroupSize) {
        vec4 lo, hi;
        decode8(w, n, row * n_blocks + i / 4u, i % 4u, lo, hi);
        for (uint c = 0u; c < kColumns; ++c) {
            if (first + c >= n_tok) break;
            const uint at = (first + c) * 8u * n_blocks + 2u * i;
            const vec4 a = x.v[at], b = x.v[at + 1u];
            precise float s = sum[c];
            for (uint k = 0u; k < 4u; ++k) s = fma(lo[k], a[k], s);
            for (uint k = 0u; k < 4u; ++k) s = fma(hi[k], b[k], s);
            sum[c] = s;
        }
    }
    for (uint c = 0u; c < kColumns; ++c) sum[c] = subgroupAdd(sum[c]);
}

#endif
