// The input row of a decode step's matrices: every workgroup loads it, takes its RMS norm if there is one, and keeps it
// in shared memory as integers of 15 bits, with a scale for each block of 32.
#ifndef WEIR_STEP_INPUT_GLSL
#define WEIR_STEP_INPUT_GLSL
#extension GL_EXT_control_flow_attributes : require
#include "common/int_dot.glsl"
#include "common/memory.glsl"
#include "common/subgroup.glsl"

// Rows of up to 2048 * kWidth columns, of which 14,336 are the most that 32 KiB of shared memory take.
layout(constant_id = 0) const uint kWidth = 1;
const uint kMostOwn = kMostStepColumns / (4u * kInvocations);
const uint kOwn = kWidth == 8u ? kMostOwn : 2u * kWidth;  // vectors of an invocation
const uint kInputBlocks = kOwn * kInvocations / 8u;
const float kLargest = 16256.0;  // 127 * 128: values are 128 * hi + lo, hi in -127..127 and lo in -64..63

// Planes of bytes by block: hi of elements 0..15 and of 16..31, then lo of both. In this order neighbouring lanes,
// which take neighbouring blocks, read neighbouring vectors.
shared uvec4 input_bytes[4u * kInputBlocks];
shared float input_scales[kInputBlocks];
shared int input_sums[kInputBlocks];  // of a block's values

// Block b of the input.
struct Input {
    uvec4 hi[2], lo[2];
    float scale;
    int sum;
};

Input input_block(uint b) {
    Input x;
    [[unroll]] for (uint h = 0u; h < 2u; ++h) {
        x.hi[h] = input_bytes[h * kInputBlocks + b];
        x.lo[h] = input_bytes[(2u + h) * kInputBlocks + b];
    }
    x.scale = input_scales[b];
    x.sum = input_sums[b];
    return x;
}

uint pack_bytes(ivec4 v) {
    const uvec4 u = uvec4(v) & 255u;
    return u.x | u.y << 8 | u.z << 16 | u.w << 24;
}

// 1 / sqrt(mean + eps), as rms_norm.comp has it.
float inverse_rms(float squares, uint n_cols, float eps) {
    precise float mean = squares / float(n_cols) + eps;
    precise float inverse = inversesqrt(mean);
    precise float twice = fma(-mean * inverse, inverse, 1.0);
    if (abs(twice) < 1.0) inverse = fma(0.5 * inverse, twice, inverse);
    return inverse;
}

// Elements 4 * at .. 4 * at + 3; the 8 lanes of a block of 32 call it together. A block with a number that is not
// finite has the scale NaN, one below 2^-100 is 0.
void put_input(uint at, vec4 v, bool inside) {
    const uvec4 bits = floatBitsToUint(v) & 0x7FFFFFFFu;
    uint most = max(max(bits.x, bits.y), max(bits.z, bits.w));
    most = max(most, subgroupShuffleXor(most, 1u));
    most = max(most, subgroupShuffleXor(most, 2u));
    most = max(most, subgroupShuffleXor(most, 4u));
    const bool is_lost = most >= 0x7F800000u, is_zero = is_lost || most < 0x0D800000u;
    const float largest = uintBitsToFloat(most);
    precise float inverse = is_zero ? 0.0 : kLargest / largest;
    precise vec4 scaled = floor(v * inverse + 0.5);
    const ivec4 value = is_zero ? ivec4(0) : ivec4(scaled);
    int sum = value.x + value.y + value.z + value.w;
    sum += subgroupShuffleXor(sum, 1u);
    sum += subgroupShuffleXor(sum, 2u);
    sum += subgroupShuffleXor(sum, 4u);
    if (!inside) return;
    const ivec4 hi = (value + 64) >> 7;
    const uint b = at >> 3, half_block = at >> 2 & 1u, word = at & 3u;
    input_bytes[half_block * kInputBlocks + b][word] = pack_bytes(hi);
    input_bytes[(2u + half_block) * kInputBlocks + b][word] = pack_bytes(value - (hi << 7));
    if ((at & 7u) == 0u) {
        precise float scale = largest * (1.0 / kLargest);
        input_scales[b] = is_lost ? uintBitsToFloat(0x7FC00000u) : is_zero ? 0.0 : scale;
        input_sums[b] = sum;
    }
}

// Those of this invocation: every kInvocations-th of n; beyond them the last one.
void load_vectors(uvec2 from, uint n, inout vec4 v[kMostOwn]) {
    const uint first = gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID;
    [[unroll]] for (uint k = 0u; k < kOwn; ++k) v[k] = Vectors(from).v[min(first + k * kInvocations, n - 1u)];
}

// All invocations must call it; afterwards all may read.
void take_input(uvec2 x, uvec2 norm, float eps, uint n_blocks) {
    const uint n = 8u * n_blocks, first = gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID;
    vec4 own[kMostOwn], weight[kMostOwn];
    load_vectors(x, n, own);
    if (!is_null(norm)) {
        // Before the sum is there; the widest rows would take too many registers.
        if (kWidth < 8u) load_vectors(norm, n, weight);
        precise float squares = 0.0;
        [[unroll]] for (uint k = 0u; k < kOwn; ++k) {
            if (first + k * kInvocations >= n) break;
            for (uint i = 0u; i < 4u; ++i) squares = fma(own[k][i], own[k][i], squares);
        }
        const float inverse = inverse_rms(workgroup_sum(squares), 4u * n, eps);
        if (kWidth == 8u) load_vectors(norm, n, weight);
        [[unroll]] for (uint k = 0u; k < kOwn; ++k) {
            precise vec4 v = own[k] * inverse;
            v *= weight[k];
            own[k] = v;
        }
    }
    [[unroll]] for (uint k = 0u; k < kOwn; ++k) {
        const uint at = first + k * kInvocations;
        put_input(at, own[k], at < n);
    }
    barrier();
}

#endif
