// Rows of matrices times the one input row of a decode step: a subgroup for each row of kMatrices matrices.
// int_weight_type.glsl is the quant_int/<type>.glsl that the shader is compiled for, with
//   struct Raw               what a lane loads of a block of 32 weights
//   Raw load_raw(uvec2 data, uint n, uint b)
//   float dot_raw(Raw raw, Input x)
// for block b of a matrix of n blocks, whose planes lie at `data` as lib/quant/<type>.h says.
//
// The shader defines kMatrices before it includes this, and the two functions that are declared here.
#ifndef WEIR_STEP_ROWS_GLSL
#define WEIR_STEP_ROWS_GLSL
#include "common/step_input.glsl"
#include "int_weight_type.glsl"

// Blocks that a lane has in flight, of each matrix a part: enough loads to hide the latency of memory.
const uint kAhead = 4u;
const uint kBlocksAhead = kAhead / kMatrices;

// A row of kMatrices matrices of n blocks: it begins at block `first`.
struct Rows {
    uvec2 data[kMatrices];
    uint n, first;
};
Rows rows_at(uint row);
void put_row(uint row, float sum[kMatrices]);

void fetch(Rows r, uint first, uint n_blocks, out Raw raw[kAhead]) {
    [[unroll]] for (uint k = 0u; k < kAhead; ++k) {
        // Beyond the row's end its last block is loaded, and not used: loads need no branches then.
        const uint at = first + k / kMatrices * gl_SubgroupSize + gl_SubgroupInvocationID;
        raw[k] = load_raw(r.data[k % kMatrices], r.n, r.first + min(at, n_blocks - 1u));
    }
}

// Each lane takes every so many blocks, in ascending order, so that a row's sum is the same whatever others there are.
// The blocks that come next are loaded before those at hand are multiplied, the first ones before the input is there.
void multiply_rows(uint n_rows, uint n_blocks, uvec2 x, uvec2 norm, float eps) {
    const uint stride = kBlocksAhead * gl_SubgroupSize, step = gl_NumWorkGroups.x * gl_NumSubgroups;
    uint row = gl_WorkGroupID.x * gl_NumSubgroups + gl_SubgroupID;
    Raw next[kAhead];
    if (row < n_rows) fetch(rows_at(row), 0u, n_blocks, next);
    take_input(x, norm, eps, n_blocks);
    for (; row < n_rows; row += step) {
        float sum[kMatrices];
        [[unroll]] for (uint m = 0u; m < kMatrices; ++m) sum[m] = 0.0;
        for (uint first = 0u; first < n_blocks; first += stride) {
            const Raw now[kAhead] = next;
            if (first + stride < n_blocks) {
                fetch(rows_at(row), first + stride, n_blocks, next);
            } else if (row + step < n_rows) {
                fetch(rows_at(row + step), 0u, n_blocks, next);
            }
            [[unroll]] for (uint k = 0u; k < kBlocksAhead; ++k) {
                const uint at = first + k * gl_SubgroupSize + gl_SubgroupInvocationID;
                if (at >= n_blocks) break;
                const Input in_block = input_block(at);
                [[unroll]] for (uint m = 0u; m < kMatrices; ++m) {
                    precise float s = sum[m] + dot_raw(now[k * kMatrices + m], in_block);
                    sum[m] = s;
                }
            }
        }
        [[unroll]] for (uint m = 0u; m < kMatrices; ++m) sum[m] = subgroupAdd(sum[m]);
        if (gl_SubgroupInvocationID == 0u) put_row(row, sum);  // not `continue`: all lanes meet again before the next
    }
}

#endif
