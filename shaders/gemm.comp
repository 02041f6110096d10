#version 460
// Computes: y = W x (+ bias), y += that or y = activation(that) * y, for many rows of x.
// Shapes: W [n_rows, n_cols] in planes, x [n_tok, n_cols], y [n_tok, stride], bias [n_rows], gates [n_tok].
// Launch: a workgroup for each tile of 128 rows of W and 8 * kColumns rows of x, x along x. Blocks of 32 columns pass
// through shared memory, transposed; while one is multiplied the next is loaded. An invocation has 8 by kColumns / 2
// sums.
// Numerics: sums in f32, of ascending columns: the same bits beside whatever other rows.
#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#include "common/subgroup.glsl"
#include "common/gemm_result.glsl"
#include "weight_type.glsl"

layout(push_constant, std430) uniform Push { GemmPush a; };
layout(constant_id = 0) const uint kColumns = 8;  // 2, 4 or 8

const uint kTokens = kGemmTokens * (kColumns / 2u);  // of a tile
const uint kOwn = kColumns / 2u;                     // tokens of an invocation
const uint kWide = 16u;                              // invocations that share a row or a token
const uint kRowVectors = kGemmRows / 4u, kMaxTokenVectors = kGemmTokens;

// Vector i of column k lies at i ^ swizzle(k): neighbouring invocations write four groups of eight columns of eight
// rows, and these are in different banks then.
shared vec4 w_tile[32][kRowVectors];
shared vec4 x_tile[32][kMaxTokenVectors];

uint n_blocks() { return a.n_cols / 32u; }
uint swizzle(uint k) { return k >> 3 << 1; }

// What an invocation loads of a block: columns 8 g .. 8 g + 7 of two rows of W and one of x.
vec4 w_next[2][2], x_next[2];

void load(uint block, uint first_row, uint first_tok) {
    const uint line = gl_LocalInvocationID.x / 4u, g = gl_LocalInvocationID.x % 4u;
    [[unroll]] for (uint i = 0u; i < 2u; ++i) {
        // Beyond the end the last row is taken, and not used.
        const uint row = min(first_row + line + i * (kGemmRows / 2u), a.n_rows - 1u);
        decode8(a.w, a.n, row * n_blocks() + block, g, w_next[i][0], w_next[i][1]);
    }
    if (line >= kTokens) return;
    const uint at = (min(first_tok + line, a.n_tok - 1u) * n_blocks() + block) * 8u + 2u * g;
    x_next[0] = Vectors(a.x).v[at];
    x_next[1] = Vectors(a.x).v[at + 1u];
}

void stage() {
    const uint line = gl_LocalInvocationID.x / 4u, g = gl_LocalInvocationID.x % 4u;
    [[unroll]] for (uint k = 0u; k < 8u; ++k) {
        [[unroll]] for (uint i = 0u; i < 2u; ++i) {
            const uint row = line + i * (kGemmRows / 2u);
            w_tile[8u * g + k][(row / 4u) ^ swizzle(8u * g)][row % 4u] = w_next[i][k / 4u][k % 4u];
        }
        if (line < kTokens) x_tile[8u * g + k][(line / 4u) ^ swizzle(8u * g)][line % 4u] = x_next[k / 4u][k % 4u];
    }
}

// Tokens kOwn * own ... of column k.
vec4 tokens_of(uint k, uint own) {
    const uint first = kOwn * own;
    if (kOwn == 4u) return x_tile[k][own ^ swizzle(k)];
    vec4 x = vec4(0.0);
    [[unroll]] for (uint j = 0u; j < kOwn; ++j)
        x[j] = x_tile[k][((first + j) / 4u) ^ swizzle(k)][(first + j) % 4u];
    return x;
}

void multiply_tile(uint first_row, uint first_tok) {
    const uint across = gl_LocalInvocationID.x % kWide, down = gl_LocalInvocationID.x / kWide;
    precise vec4 sum[4][2];
    [[unroll]] for (uint j = 0u; j < kOwn; ++j) sum[j][0] = sum[j][1] = vec4(0.0);
    load(0u, first_row, first_tok);
    for (uint block = 0u; block < n_blocks(); ++block) {
        barrier();  // the block before is still read
        stage();
        barrier();
        if (block + 1u < n_blocks()) load(block + 1u, first_row, first_tok);
        [[dont_unroll]] for (uint first = 0u; first < 32u; first += 4u) {
            [[unroll]] for (uint i = 0u; i < 4u; ++i) {
                const uint k = first + i;
                const vec4 low = w_tile[k][across ^ swizzle(k)], high = w_tile[k][(across + kWide) ^ swizzle(k)];
                const vec4 x = tokens_of(k, down);
                [[unroll]] for (uint j = 0u; j < kOwn; ++j) {
                    sum[j][0] = fma(low, vec4(x[j]), sum[j][0]);
                    sum[j][1] = fma(high, vec4(x[j]), sum[j][1]);
                }
            }
        }
    }
    [[unroll]] for (uint j = 0u; j < kOwn; ++j) {
        const uint tok = first_tok + kOwn * down + j;
        if (tok >= a.n_tok) break;
        [[unroll]] for (uint i = 0u; i < 8u; ++i) {
            const uint row = first_row + 4u * across + i % 4u + (i / 4u) * (kGemmRows / 2u);
            if (row < a.n_rows) write_result(a, tok, row, tok * a.stride + row, sum[j][i / 4u][i % 4u]);
        }
    }
}

void main() {
    for (uint first = gl_WorkGroupID.y * kGemmRows; first < a.n_rows; first += gl_NumWorkGroups.y * kGemmRows)
        multiply_tile(first, gl_WorkGroupID.x * kTokens);
}
