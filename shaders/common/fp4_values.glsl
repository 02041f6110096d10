// The values of the 4-bit floating-point numbers of MXFP4 and NVFP4, doubled; the second zero is not used.
#ifndef WEIR_FP4_VALUES_GLSL
#define WEIR_FP4_VALUES_GLSL

const float kFp4Values[16] =
    float[16](0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 0.0, -1.0, -2.0, -3.0, -4.0, -6.0, -8.0, -12.0);
vec4 fp4_values(uvec4 i) { return vec4(kFp4Values[i.x], kFp4Values[i.y], kFp4Values[i.z], kFp4Values[i.w]); }

#endif
