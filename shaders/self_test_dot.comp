#version 460
// Computes: integer dot products of packed bytes; the host knows the answers (lib/vulkan/self_test.cpp).
// Launch: one workgroup.
#extension GL_GOOGLE_include_directive : require
#include "common/int_dot.glsl"
#include "common/memory.glsl"
#include "shared.h"

layout(local_size_x = 256) in;
layout(push_constant, std430) uniform Push { SelfTestDotPush a; };

void main() {
    const uint i = gl_LocalInvocationID.x;
    OutWords(a.out_words).v[i] = uint(dot4(i * kDotFactor, kDotOther - i));
}
