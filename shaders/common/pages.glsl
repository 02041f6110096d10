// KV pages in device memory: bf16 numbers in words, two a word, the lower element in the lower half.
#ifndef WEIR_PAGES_GLSL
#define WEIR_PAGES_GLSL
#include "attn.h"
#include "common/memory.glsl"

layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Quads { uvec4 v[]; };

// The address n * bytes behind another: pools are larger than 32 bits count.
uvec2 plus(uvec2 address, uint n, uint bytes) {
    uint high, low, carry;
    umulExtended(n, bytes, high, low);
    const uint x = uaddCarry(address.x, low, carry);
    return uvec2(x, address.y + high + carry);
}

// The page in a slot: kPageRows keys, then as many values.
uvec2 page_at(uvec2 pool, uint slot, uint head_dim) { return plus(pool, slot, 4u * kPageRows * head_dim); }

float low_bf16(uint word) { return uintBitsToFloat(word << 16); }
float high_bf16(uint word) { return uintBitsToFloat(word & 0xFFFF0000u); }
vec4 bf16x4(uvec2 words) {
    return vec4(low_bf16(words.x), high_bf16(words.x), low_bf16(words.y), high_bf16(words.y));
}

// Rounds to nearest, ties to even; a NaN stays one (lib/quant/half.h).
uint bf16_bits(float x) {
    const uint bits = floatBitsToUint(x);
    return is_nan(x) ? bits >> 16 | 0x40u : (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16;
}
uint bf16_pair(float low, float high) { return bf16_bits(low) | bf16_bits(high) << 16; }

// A word of new keys in the words of their page's digest: the largest and the smallest of two channels, which a page's
// first key begins.
void digest_key(uint key, bool first, inout uint most, inout uint least) {
    if (first || low_bf16(key) > low_bf16(most)) most = most & 0xFFFF0000u | key & 0xFFFFu;
    if (first || high_bf16(key) > high_bf16(most)) most = most & 0xFFFFu | key & 0xFFFF0000u;
    if (first || low_bf16(key) < low_bf16(least)) least = least & 0xFFFF0000u | key & 0xFFFFu;
    if (first || high_bf16(key) < high_bf16(least)) least = least & 0xFFFFu | key & 0xFFFF0000u;
}

#endif
