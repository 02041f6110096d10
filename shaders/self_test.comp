#version 460
// Computes: what the driver makes of the subgroup operations that the other shaders need; the host knows the answers
// (lib/vulkan/self_test.cpp). Launch: one workgroup.
#extension GL_GOOGLE_include_directive : require
#include "common/memory.glsl"
#include "common/subgroup.glsl"

layout(push_constant, std430) uniform Push { SelfTestPush a; };

shared uint slots[kInvocations];

void put(uint word, uint value) { OutWords(a.out_words).v[word * kInvocations + gl_LocalInvocationID.x] = value; }

void main() {
    const uint own = 3u * gl_LocalInvocationID.x + 1u;
    put(kSelfTestLane, gl_SubgroupInvocationID);
    put(kSelfTestLanes, gl_SubgroupSize);
    put(kSelfTestSubgroup, gl_SubgroupID);
    put(kSelfTestShuffle, subgroupShuffleXor(own, 5u));
    put(kSelfTestSum, subgroupAdd(own));
    put(kSelfTestMax, subgroupMax(own));
    put(kSelfTestFloats, floatBitsToUint(subgroupAdd(float(gl_SubgroupInvocationID) + 0.5)));
    slots[gl_LocalInvocationID.x] = own;
    barrier();
    put(kSelfTestShared, slots[(gl_LocalInvocationID.x + 37u) % kInvocations]);
}
