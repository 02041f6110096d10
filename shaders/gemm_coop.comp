#version 460
// Computes: y = s W x (+ bias), y += that or y = activation(that) * y, for many rows of x, by cooperative matrices; s
// is a scale for each row of x.
// Shapes: W [n_rows, n_cols] and x [n_tok, n_cols] in f16, y [n_tok, stride], s, gates [n_tok], bias [n_rows].
// Launch: a workgroup for each tile of kTileTokens by kTileRows, x along x; a subgroup has one of kDown by kAcross
// parts of the tile, in matrices of kM by kN. kStep columns at a time pass through shared memory; while they are
// multiplied the next are loaded.
// Numerics: f16 products, f32 sums of ascending columns: the same bits beside whatever other rows.
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#include "common/gemm_result.glsl"
#include "shared.h"

layout(push_constant, std430) uniform Push { GemmPush a; };
layout(constant_id = 3) const uint kThreads = kInvocations;
layout(local_size_x_id = 3) in;
layout(constant_id = 6) const uint kM = 16;  // tokens of a matrix
layout(constant_id = 7) const uint kN = 16;  // rows
layout(constant_id = 8) const uint kK = 16;  // columns
layout(constant_id = 9) const uint kTileTokens = 128;
layout(constant_id = 10) const uint kTileRows = 128;
layout(constant_id = 11) const uint kStep = 32;
layout(constant_id = 12) const uint kDown = 2;
layout(constant_id = 13) const uint kAcross = 4;

layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Eights { uvec4 v[]; };  // of f16

// The part of the tile that a subgroup has.
const uint kOwnTokens = kTileTokens / kDown, kOwnRows = kTileRows / kAcross;
const uint kMatricesDown = kOwnTokens / kM, kMatricesAcross = kOwnRows / kN;
// Eights of columns in a step; rows in shared memory are one further apart, so that eight of them lie in different
// banks.
const uint kEights = kStep / 8u, kStride = kEights + 1u;
const uint kTokenLoads = (kTileTokens * kEights + kThreads - 1u) / kThreads;
const uint kRowLoads = (kTileRows * kEights + kThreads - 1u) / kThreads;

shared uvec4 x_tile[kTileTokens * kStride];
shared uvec4 w_tile[kTileRows * kStride];
shared float results[kDown * kAcross * kM * kN];

uvec4 x_next[kTokenLoads], w_next[kRowLoads];

// Where line `line` of n begins, in eights; beyond the end the last one is taken, and not used.
uint line_at(uint line, uint n) { return min(line, n - 1u) * (a.n_cols / 8u); }

void load(uint step, uint first_tok, uint first_row) {
    const uint own = gl_LocalInvocationID.x % kEights, line = gl_LocalInvocationID.x / kEights;
    const uint column = step * kEights + own;
    const bool is_there = kStep == 32u || column < a.n_cols / 8u;
    [[unroll]] for (uint i = 0u; i < kTokenLoads; ++i) {
        const uint at = line_at(first_tok + line + i * (kThreads / kEights), a.n_tok) + column;
        x_next[i] = is_there ? Eights(a.x).v[at] : uvec4(0u);
    }
    [[unroll]] for (uint i = 0u; i < kRowLoads; ++i) {
        const uint at = line_at(first_row + line + i * (kThreads / kEights), a.n_rows) + column;
        w_next[i] = is_there ? Eights(a.w).v[at] : uvec4(0u);
    }
}

void put() {
    const uint own = gl_LocalInvocationID.x % kEights, line = gl_LocalInvocationID.x / kEights;
    [[unroll]] for (uint i = 0u; i < kTokenLoads; ++i) {
        const uint to = line + i * (kThreads / kEights);
        if (to < kTileTokens) x_tile[to * kStride + own] = x_next[i];
    }
    [[unroll]] for (uint i = 0u; i < kRowLoads; ++i) {
        const uint to = line + i * (kThreads / kEights);
        if (to < kTileRows) w_tile[to * kStride + own] = w_next[i];
    }
}

void main() {
    const uint first_tok = gl_WorkGroupID.x * kTileTokens, first_row = gl_WorkGroupID.y * kTileRows;
    const uint own_tok = gl_SubgroupID % kDown * kOwnTokens, own_row = gl_SubgroupID / kDown * kOwnRows;
    coopmat<float, gl_ScopeSubgroup, kM, kN, gl_MatrixUseAccumulator> sum[kMatricesDown * kMatricesAcross];
    [[unroll]] for (uint i = 0u; i < kMatricesDown * kMatricesAcross; ++i)
        sum[i] = coopmat<float, gl_ScopeSubgroup, kM, kN, gl_MatrixUseAccumulator>(0.0);

    const uint n_steps = (a.n_cols + kStep - 1u) / kStep;
    load(0u, first_tok, first_row);
    for (uint step = 0u; step < n_steps; ++step) {
        barrier();  // the step before is still read
        put();
        barrier();
        if (step + 1u < n_steps) load(step + 1u, first_tok, first_row);
        [[unroll]] for (uint k = 0u; k < kStep / kK; ++k) {
            coopmat<float16_t, gl_ScopeSubgroup, kM, kK, gl_MatrixUseA> x[kMatricesDown];
            [[unroll]] for (uint i = 0u; i < kMatricesDown; ++i)
                coopMatLoad(x[i], x_tile, (own_tok + i * kM) * kStride + k * (kK / 8u), kStride,
                            gl_CooperativeMatrixLayoutRowMajor);
            [[unroll]] for (uint j = 0u; j < kMatricesAcross; ++j) {
                coopmat<float16_t, gl_ScopeSubgroup, kK, kN, gl_MatrixUseB> w;
                coopMatLoad(w, w_tile, (own_row + j * kN) * kStride + k * (kK / 8u), kStride,
                            gl_CooperativeMatrixLayoutColumnMajor);
                [[unroll]] for (uint i = 0u; i < kMatricesDown; ++i)
                    sum[i * kMatricesAcross + j] = coopMatMulAdd(x[i], w, sum[i * kMatricesAcross + j]);
            }
        }
    }

    // A matrix at a time, through shared memory of the subgroup's own: which lane has which element is the driver's.
    // The unrolled loop has little in it: NVIDIA's driver does not unroll a longer one, and keeps the sums in memory
    // then, which makes the whole product five times as slow.
    const uint patch_at = gl_SubgroupID * kM * kN;
    [[dont_unroll]] for (uint at = 0u; at < kMatricesDown * kMatricesAcross; ++at) {
        [[unroll]] for (uint i = 0u; i < kMatricesDown * kMatricesAcross; ++i) {
            if (i == at) coopMatStore(sum[i], results, patch_at, kN, gl_CooperativeMatrixLayoutRowMajor);
        }
        controlBarrier(gl_ScopeSubgroup, gl_ScopeSubgroup, gl_StorageSemanticsShared, gl_SemanticsAcquireRelease);
        const uint tok_at = first_tok + own_tok + at / kMatricesAcross * kM;
        const uint row_at = first_row + own_row + at % kMatricesAcross * kN;
        for (uint e = gl_SubgroupInvocationID; e < kM * kN; e += gl_SubgroupSize) {
            const uint tok = tok_at + e / kN, row = row_at + e % kN;
            if (tok < a.n_tok && row < a.n_rows)
                write_result(a, tok, row, tok * a.stride + row, Floats(a.scales).v[tok] * results[patch_at + e]);
        }
        controlBarrier(gl_ScopeSubgroup, gl_ScopeSubgroup, gl_StorageSemanticsShared, gl_SemanticsAcquireRelease);
    }
}
