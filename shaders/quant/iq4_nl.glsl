// IQ4_NL: indices of values, f16 scales. Contract: common/unpack.glsl.
#include "common/iq4_values.glsl"
#include "common/unpack.glsl"

void decode8(uvec2 data, uint n, uint b, uint g, out vec4 lo, out vec4 hi) {
    Words p = Words(data);
    const float scale = half_at(p, 4u * n, b);
    uvec4 a, c;
    indices8(p, b, g, a, c);
    lo = scale * iq4_values(a);
    hi = scale * iq4_values(c);
}
