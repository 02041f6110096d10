// Lanes and their sums. Subgroups have 8 lanes or more, of any number; invocations are numbered by gl_SubgroupID and
// gl_SubgroupInvocationID, because drivers need not pack them in the order of gl_LocalInvocationID.
#ifndef WEIR_SUBGROUP_GLSL
#define WEIR_SUBGROUP_GLSL
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "shared.h"

#ifdef WEIR_ANY_INVOCATIONS  // a workgroup has as many as the pipeline says
layout(constant_id = 3) const uint kThreads = kInvocations;
layout(local_size_x_id = 3) in;
#else
const uint kThreads = kInvocations;
layout(local_size_x = 256) in;
#endif

shared float subgroup_sums[kThreads / kMinLanes];

// The sum over the workgroup, the subgroups' in ascending order. All invocations must call it.
float workgroup_sum(float x) {
    const float own = subgroupAdd(x);
    barrier();  // the sums of a call before may still be read
    if (gl_SubgroupInvocationID == 0u) subgroup_sums[gl_SubgroupID] = own;
    barrier();
    precise float sum = 0.0;
    for (uint i = 0u; i < gl_NumSubgroups; ++i) sum += subgroup_sums[i];
    return sum;
}

#endif
