// F32: one plane of floats. Contract: common/unpack.glsl.
#include "common/unpack.glsl"

void decode8(uvec2 data, uint n, uint b, uint g, out vec4 lo, out vec4 hi) {
    Vectors p = Vectors(data);
    lo = p.v[8u * b + 2u * g];
    hi = p.v[8u * b + 2u * g + 1u];
}
