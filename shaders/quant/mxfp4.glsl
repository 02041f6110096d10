// MXFP4: indices of doubled values, bytes of exponents. Contract: common/unpack.glsl.
#include "common/fp4_values.glsl"
#include "common/unpack.glsl"

// 2 to the power e - 128; 255 is not a number.
float mxfp4_scale(uint e) {
    if (e == 255u) return uintBitsToFloat(0x7FC00000u);
    return uintBitsToFloat(e < 2u ? 0x00200000u << e : (e - 1u) << 23);
}

void decode8(uvec2 data, uint n, uint b, uint g, out vec4 lo, out vec4 hi) {
    Words p = Words(data);
    const float scale = mxfp4_scale(u8_at(p, 4u * n, b));
    uvec4 a, c;
    indices8(p, b, g, a, c);
    lo = scale * fp4_values(a);
    hi = scale * fp4_values(c);
}
