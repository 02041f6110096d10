// NVFP4: indices of doubled values, two bytes of scales. Contract: common/unpack.glsl.
#include "common/fp4_values.glsl"
#include "common/unpack.glsl"

// Half of what the eight bits stand for; 127 counts as 0.
float nvfp4_scale(uint s) {
    const uint exponent = s >> 3 & 15u, fraction = s & 7u;
    if (s == 127u) return 0.0;
    return exponent == 0u ? float(fraction) * 0.0009765625 : uintBitsToFloat((exponent + 119u) << 23 | fraction << 20);
}

void decode8(uvec2 data, uint n, uint b, uint g, out vec4 lo, out vec4 hi) {
    Words p = Words(data);
    const float scale = nvfp4_scale(u8_at(p, 4u * n, 2u * b + (g >> 1)));
    uvec4 a, c;
    indices8(p, b, g, a, c);
    lo = scale * fp4_values(a);
    hi = scale * fp4_values(c);
}
