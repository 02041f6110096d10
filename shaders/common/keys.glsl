// Floats as integers of the same order, and what a workgroup makes of integers.
#ifndef WEIR_KEYS_GLSL
#define WEIR_KEYS_GLSL
#include "common/memory.glsl"
#include "common/subgroup.glsl"

// Of no float: before all of them, and after all of them.
const uint kKeyNever = 0u, kKeyAlways = 0xFFFFFFFFu;
const uint kInfinity = 0x7F800000u, kMinusInfinity = 0xFF800000u;

// NaN counts as -inf, and the zeros are equal.
float number(float x) { return is_nan(x) ? uintBitsToFloat(kMinusInfinity) : x; }
uint ordered_key(float x) {
    const uint own = floatBitsToUint(x), bits = is_nan(x) ? kMinusInfinity : own == 0x80000000u ? 0u : own;
    return (bits & 0x80000000u) != 0u ? ~bits : bits | 0x80000000u;
}
float float_of_key(uint key) {
    return uintBitsToFloat((key & 0x80000000u) != 0u ? key & 0x7FFFFFFFu : ~key);
}

// The number of an invocation in its workgroup, in the order of scan().
uint invocation() { return gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID; }

shared uint key_parts[3 * kMostSubgroups];

// All invocations of the workgroup must call each of these.
// Least x, largest y, sum of z.
uvec3 workgroup_range(uvec3 own) {
    const uvec3 part = uvec3(subgroupMin(own.x), subgroupMax(own.y), subgroupAdd(own.z));
    barrier();  // what a call before left may still be read
    if (gl_SubgroupInvocationID == 0u) {
        for (uint i = 0u; i < 3u; ++i) key_parts[i * kMostSubgroups + gl_SubgroupID] = part[i];
    }
    barrier();
    uvec3 all = uvec3(0xFFFFFFFFu, 0u, 0u);
    for (uint i = 0u; i < gl_NumSubgroups; ++i) {
        all.x = min(all.x, key_parts[i]);
        all.y = max(all.y, key_parts[kMostSubgroups + i]);
        all.z += key_parts[2u * kMostSubgroups + i];
    }
    return all;
}
uint workgroup_least(uint x) { return workgroup_range(uvec3(x, 0u, 0u)).x; }
uint workgroup_most(uint x) { return workgroup_range(uvec3(0u, x, 0u)).y; }
uint workgroup_count(uint x) { return workgroup_range(uvec3(0u, 0u, x)).z; }

shared uint scan_parts[2 * kMostSubgroups];

// The sum over the invocations before this one, and over all. `side` is 0 and 1 in turn.
uvec2 scan(uint x, uint side) {
    const uint before = subgroupExclusiveAdd(x), own = subgroupAdd(x);
    if (gl_SubgroupInvocationID == 0u) scan_parts[side * kMostSubgroups + gl_SubgroupID] = own;
    barrier();
    uvec2 sum = uvec2(before, 0u);
    for (uint i = 0u; i < gl_NumSubgroups; ++i) {
        const uint part = scan_parts[side * kMostSubgroups + i];
        if (i < gl_SubgroupID) sum.x += part;
        sum.y += part;
    }
    return sum;
}

#endif
