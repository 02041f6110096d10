// The input row of a decode step's matrices: every workgroup loads it, takes its RMS norm if there is one, and keeps it
// in shared memory as integers of 15 bits, with a scale for each block of 32.
#ifndef WEIR_STEP_INPUT_GLSL
#define WEIR_STEP_INPUT_GLSL
#extension GL_EXT_control_flow_attributes : require
#include "common/memory.glsl"
#include "common/step_block.glsl"
#include "common/subgroup.glsl"

// Rows of up to 2048 * kWidth columns, of which 14,336 are the most that 32 KiB of shared memory take.
layout(constant_id = 0) const uint kWidth = 1;
// Vectors of an invocation.
const uint kOwn = (kWidth == 8u ? kMaxStepColumns : 2048u * kWidth) / (4u * kThreads);
// So many of them are in registers at a time.
const uint kHeld = kOwn < 4u ? kOwn : 4u;
const uint kInputBlocks = kOwn * kThreads / 8u;
const float kLargest = 16256.0;  // 127 * 128

// Planes of bytes by block: hi of elements 0..15 and of 16..31, then lo of both. In this order neighbouring lanes,
// which take neighbouring blocks, read neighbouring vectors.
shared uvec4 input_bytes[4u * kInputBlocks];
shared float input_scales[kInputBlocks];
shared int input_sums[kInputBlocks];  // of a block's values

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

// An invocation has every kThreads-th of n vectors; kHeld of them from its `first` on. Beyond them the last one.
void load_held(uvec2 from, uint n, uint first, out vec4 v[kHeld]) {
    const uint me = gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID;
    [[unroll]] for (uint k = 0u; k < kHeld; ++k) v[k] = Vectors(from).v[min(me + (first + k) * kThreads, n - 1u)];
}

// All invocations must call it; afterwards all may read. Of rows with more vectors than are held, the norm needs them
// twice, and loads those that come next while it has others at hand.
void take_input(uvec2 x, uvec2 norm, float eps, uint n_blocks) {
    const uint n = 8u * n_blocks, me = gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID;
    const bool has_norm = !is_null(norm);
    vec4 held[kHeld], next[kHeld], weight[kHeld];
    load_held(x, n, 0u, held);
    float inverse = 1.0;
    if (has_norm) {
        load_held(norm, n, 0u, weight);
        precise float squares = 0.0;
        for (uint first = 0u; first < kOwn; first += kHeld) {
            if (first > 0u) load_held(x, n, first, next);
            [[unroll]] for (uint k = 0u; k < kHeld; ++k) {
                if (me + (first + k) * kThreads >= n) break;
                for (uint i = 0u; i < 4u; ++i) {
                    const float element = first > 0u ? next[k][i] : held[k][i];
                    squares = fma(element, element, squares);
                }
            }
        }
        inverse = inverse_rms(workgroup_sum(squares), 4u * n, eps);
    }
    for (uint first = 0u; first < kOwn; first += kHeld) {
        if (first + kHeld < kOwn) load_held(x, n, first + kHeld, next);
        if (has_norm && first > 0u) load_held(norm, n, first, weight);
        [[unroll]] for (uint k = 0u; k < kHeld; ++k) {
            const uint at = me + (first + k) * kThreads;
            precise vec4 v = held[k];
            if (has_norm) {
                v *= inverse;
                v *= weight[k];
            }
            put_input(at, v, at < n);
            held[k] = next[k];
        }
    }
    barrier();
}

#endif
