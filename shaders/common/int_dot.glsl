// Integer dot products of four signed bytes, packed in words: an option of drivers (Device::has_dot). glslc of today
// has no name for the instruction, so it is given by its number.
#ifndef WEIR_INT_DOT_GLSL
#define WEIR_INT_DOT_GLSL
#extension GL_EXT_spirv_intrinsics : require

// OpSDot with DotProduct and DotProductInput4x8BitPacked; format 0 is PackedVectorFormat4x8Bit.
spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6018, 6019], id = 4450)
int packed_dot(int a, int b, spirv_literal int format);

int dot4(uint a, uint b) { return packed_dot(int(a), int(b), 0); }
int dot16(uvec4 a, uvec4 b) { return dot4(a.x, b.x) + dot4(a.y, b.y) + dot4(a.z, b.z) + dot4(a.w, b.w); }

#endif
