// The 16 values of lib/quant/iq4_values.h.
#ifndef WEIR_IQ4_VALUES_GLSL
#define WEIR_IQ4_VALUES_GLSL

const float kIq4Values[16] = float[16](-127.0, -104.0, -83.0, -65.0, -49.0, -35.0, -22.0, -10.0, 1.0, 13.0, 25.0, 38.0,
                                       53.0, 69.0, 89.0, 113.0);
vec4 iq4_values(uvec4 i) { return vec4(kIq4Values[i.x], kIq4Values[i.y], kIq4Values[i.z], kIq4Values[i.w]); }

#endif
