// bf16 values, two to a word, the first in the low half.
#ifndef WEIR_BF16_GLSL
#define WEIR_BF16_GLSL

float bf16_low(uint w) { return uintBitsToFloat(w << 16); }
float bf16_high(uint w) { return uintBitsToFloat(w & 0xFFFF0000u); }

// Eight neighbours.
void bf16_unpack(uvec4 w, out vec4 lo, out vec4 hi) {
    lo = vec4(bf16_low(w.x), bf16_high(w.x), bf16_low(w.y), bf16_high(w.y));
    hi = vec4(bf16_low(w.z), bf16_high(w.z), bf16_low(w.w), bf16_high(w.w));
}

// To the nearest, ties to even; a NaN stays one.
uint bf16_bits(float x) {
    const uint bits = floatBitsToUint(x);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return bits >> 16 | 0x40u;
    return bits + 0x7FFFu + (bits >> 16 & 1u) >> 16;
}

#endif
