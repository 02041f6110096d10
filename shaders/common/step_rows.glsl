// Rows of matrices times kColumns input rows of decode steps: a subgroup for each row of kMatrices matrices.
// int_weight_type.glsl is the quant_int/<type>.glsl that the shader is compiled for, with
//   struct Raw               what a lane loads of a block of 32 weights
//   Raw load_raw(uvec2 data, uint n, uint b)
//   float dot_raw(Raw raw, Input x)
// for block b of a matrix of n blocks, whose planes lie at `data` as lib/quant/<type>.h says.
//
// The shader defines kMatrices, kColumns and its push constants before it includes this, and the functions that are
// declared here.
#ifndef WEIR_STEP_ROWS_GLSL
#define WEIR_STEP_ROWS_GLSL
#extension GL_EXT_control_flow_attributes : require
#include "common/step_block.glsl"
#include "common/subgroup.glsl"
#include "int_weight_type.glsl"

// Blocks that a lane has in flight, of each matrix a part: enough loads to hide the latency of memory. More of them, or
// fewer at a time but several times, were slower (docs/results/gpu/vulkan-steps.csv).
const uint kAhead = 4u;
const uint kBlocksAhead = kAhead / kMatrices;

// A row of kMatrices matrices of n blocks: it begins at block `first`.
struct Rows {
    uvec2 data[kMatrices];
    uint n, first;
};
Rows rows_at(uint row);
// What is needed before block_of_column(), by all invocations.
void prepare_input();
Input block_of_column(uint column, uint b);
// Sums of all columns of matrix 0, then of the next one.
const uint kSums = kMatrices * kColumns;
void put_row(uint row, float sum[kSums]);

void fetch(Rows r, uint first, uint n_blocks, out Raw raw[kAhead]) {
    [[unroll]] for (uint k = 0u; k < kAhead; ++k) {
        // Beyond the row's end its last block is loaded, and not used: loads need no branches then.
        const uint at = first + k / kMatrices * gl_SubgroupSize + gl_SubgroupInvocationID;
        raw[k] = load_raw(r.data[k % kMatrices], r.n, r.first + min(at, n_blocks - 1u));
    }
}

// kAhead blocks of a lane in a row; the next ones are in the same row, or begin the subgroup's next row.
struct Place {
    uint row, first;
};
Place after(Place p, uint n_blocks) {
    p.first += kBlocksAhead * gl_SubgroupSize;
    return p.first < n_blocks ? p : Place(p.row + gl_NumWorkGroups.x * gl_NumSubgroups, 0u);
}

// Each lane takes every so many blocks, in ascending order, so that a row's sum is the same whatever other rows and
// columns there are. The blocks that come next are loaded before those at hand are multiplied, the first ones before
// the input is there.
void multiply_rows(uint n_rows, uint n_blocks) {
    Place at = Place(gl_WorkGroupID.x * gl_NumSubgroups + gl_SubgroupID, 0u);
    Raw coming[kAhead];
    if (at.row < n_rows) fetch(rows_at(at.row), 0u, n_blocks, coming);
    prepare_input();
    float sum[kSums];
    [[unroll]] for (uint i = 0u; i < kSums; ++i) sum[i] = 0.0;
    while (at.row < n_rows) {
        const Raw now[kAhead] = coming;
        const Place next = after(at, n_blocks);
        if (next.row < n_rows) fetch(rows_at(next.row), next.first, n_blocks, coming);
        [[unroll]] for (uint k = 0u; k < kBlocksAhead; ++k) {
            const uint block = at.first + k * gl_SubgroupSize + gl_SubgroupInvocationID;
            if (block >= n_blocks) break;
            [[unroll]] for (uint c = 0u; c < kColumns; ++c) {
                const Input in_block = block_of_column(c, block);
                [[unroll]] for (uint m = 0u; m < kMatrices; ++m) {
                    const uint i = m * kColumns + c;
                    precise float s = sum[i] + dot_raw(now[k * kMatrices + m], in_block);
                    sum[i] = s;
                }
            }
        }
        if (next.row != at.row) {
            [[unroll]] for (uint i = 0u; i < kSums; ++i) sum[i] = subgroupAdd(sum[i]);
            if (gl_SubgroupInvocationID == 0u) put_row(at.row, sum);
            [[unroll]] for (uint i = 0u; i < kSums; ++i) sum[i] = 0.0;
        }
        at = next;
    }
}

#endif
