// Device memory by address: words, floats and vectors of floats. Weights are read as 32-bit words and unpacked, because
// smaller types in memory are an option that not every driver has.
#ifndef WEIR_MEMORY_GLSL
#define WEIR_MEMORY_GLSL
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference_uvec2 : require
#extension GL_GOOGLE_include_directive : require

layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer Words { uint v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) writeonly buffer OutWords { uint v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Floats { float v[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) buffer Vectors { vec4 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Cells { uint v[]; };
// What other workgroups of the same launch wrote, or will read.
layout(buffer_reference, std430, buffer_reference_align = 4) coherent buffer SharedCells { uint v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) coherent buffer SharedFloats { float v[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) coherent buffer SharedVectors { vec4 v[]; };

bool is_null(uvec2 address) { return (address.x | address.y) == 0u; }

// By bits: a driver may assume that there are no NaN.
bool is_nan(float x) { return (floatBitsToUint(x) & 0x7FFFFFFFu) > 0x7F800000u; }
bool is_finite(float x) { return (floatBitsToUint(x) & 0x7F800000u) != 0x7F800000u; }

#endif
