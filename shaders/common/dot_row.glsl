// Products of a row of weights with some rows of x. weight_type.glsl is the quant/<type>.glsl that the shader is
// compiled for.
#ifndef WEIR_DOT_ROW_GLSL
#define WEIR_DOT_ROW_GLSL
#extension GL_EXT_control_flow_attributes : require
#include "common/subgroup.glsl"
#include "weight_type.glsl"

// Rows of x in one pass, at most kMaxColumns.
layout(constant_id = 0) const uint kColumns = 1;

// Groups of 8 weights that a lane has in flight: so many loads hide the latency of memory.
const uint kAhead = 4u;

void add_group(vec4 lo, vec4 hi, vec4 a, vec4 b, inout float sum) {
    precise float s = sum;
    for (uint k = 0u; k < 4u; ++k) s = fma(lo[k], a[k], s);
    for (uint k = 0u; k < 4u; ++k) s = fma(hi[k], b[k], s);
    sum = s;
}

// sum_a[c], sum_b[c]: rows `row_a` and `row_b` of two matrices of one shape times row first + c of x, for rows below
// n_tok; one pass over x. Each lane takes every so many groups of 8 weights, in ascending order; its sum and the
// subgroup's are the same whatever other rows there are.
void dot_rows(uvec2 w_a, uint row_a, uvec2 w_b, uint row_b, uint n, uint n_blocks, uvec2 x_at, uint first, uint n_tok,
              out float sum_a[kMaxColumns], out float sum_b[kMaxColumns]) {
    Vectors x = Vectors(x_at);
    const uint n_groups = 4u * n_blocks;
    [[unroll]] for (uint c = 0u; c < kColumns; ++c) sum_a[c] = sum_b[c] = 0.0;
    for (uint i = gl_SubgroupInvocationID; i < n_groups; i += kAhead * gl_SubgroupSize) {
        vec4 a_lo[kAhead], a_hi[kAhead], b_lo[kAhead], b_hi[kAhead];
        [[unroll]] for (uint k = 0u; k < kAhead; ++k) {
            // Beyond the row's end its last group is decoded, and not used: loads need no branches then.
            const uint at = min(i + k * gl_SubgroupSize, n_groups - 1u);
            decode8(w_a, n, row_a * n_blocks + at / 4u, at % 4u, a_lo[k], a_hi[k]);
            decode8(w_b, n, row_b * n_blocks + at / 4u, at % 4u, b_lo[k], b_hi[k]);
        }
        [[unroll]] for (uint c = 0u; c < kColumns; ++c) {
            if (first + c >= n_tok) break;
            [[unroll]] for (uint k = 0u; k < kAhead; ++k) {
                const uint at = i + k * gl_SubgroupSize;
                if (at >= n_groups) break;
                const vec4 a = x.v[(first + c) * 2u * n_groups + 2u * at];
                const vec4 b = x.v[(first + c) * 2u * n_groups + 2u * at + 1u];
                add_group(a_lo[k], a_hi[k], a, b, sum_a[c]);
                add_group(b_lo[k], b_hi[k], a, b, sum_b[c]);
            }
        }
    }
    [[unroll]] for (uint c = 0u; c < kColumns; ++c) {
        sum_a[c] = subgroupAdd(sum_a[c]);
        sum_b[c] = subgroupAdd(sum_b[c]);
    }
}

#endif
