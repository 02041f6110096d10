// Floats as integers of the same order, and what a workgroup makes of integers.
#ifndef WEIR_KEYS_GLSL
#define WEIR_KEYS_GLSL
#include "common/memory.glsl"
#include "common/subgroup.glsl"

// Keys that no float has: before all of them, and after all of them.
const uint kKeyNever = 0u, kKeyAlways = 0xFFFFFFFFu;
const uint kInfinity = 0x7F800000u, kMinusInfinity = 0xFF800000u;
// The least and the largest key of a float.
const uint kKeyOfNothing = 0x007FFFFFu, kKeyOfInfinity = 0xFF800000u;

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

const uint kMaxParts = kThreads / kMinLanes;
shared uvec4 range_parts[kMaxParts];
shared uint max_parts[kMaxParts], scan_parts[2 * kMaxParts];

// All invocations of the workgroup must call each of these. What the subgroups leave is joined by the lanes of each.
// Least x, largest y, sums of z and of w.
uvec4 workgroup_range(uvec4 own) {
    const uvec4 part = uvec4(subgroupMin(own.x), subgroupMax(own.y), subgroupAdd(own.zw));
    barrier();  // what a call before left may still be read
    if (gl_SubgroupInvocationID == 0u) range_parts[gl_SubgroupID] = part;
    barrier();
    uvec4 all = uvec4(0xFFFFFFFFu, 0u, 0u, 0u);
    for (uint i = 0u; i < gl_NumSubgroups; i += gl_SubgroupSize) {
        if (i + gl_SubgroupInvocationID < gl_NumSubgroups) {
            const uvec4 next = range_parts[i + gl_SubgroupInvocationID];
            all = uvec4(min(all.x, next.x), max(all.y, next.y), all.zw + next.zw);
        }
    }
    return uvec4(subgroupMin(all.x), subgroupMax(all.y), subgroupAdd(all.zw));
}
uint workgroup_count(uint x) { return workgroup_range(uvec4(0u, 0u, x, 0u)).z; }

uint workgroup_most(uint x) {
    const uint part = subgroupMax(x);
    barrier();  // what a call before left may still be read
    if (gl_SubgroupInvocationID == 0u) max_parts[gl_SubgroupID] = part;
    barrier();
    uint most = 0u;
    for (uint i = 0u; i < gl_NumSubgroups; i += gl_SubgroupSize) {
        if (i + gl_SubgroupInvocationID < gl_NumSubgroups) most = max(most, max_parts[i + gl_SubgroupInvocationID]);
    }
    return subgroupMax(most);
}
uint workgroup_least(uint x) { return ~workgroup_most(~x); }

// Over the subgroup. Not subgroupAdd: NVIDIA's driver (580) gave wrong sums of such pairs in page_select by kAggMaxZ
// with 1,024 invocations, whose few registers do not hold everything; with shuffles they are right.
uvec2 sum_of_pairs(uvec2 own) {
    for (uint i = 1u; i < gl_SubgroupSize; i *= 2u)
        own += uvec2(subgroupShuffleXor(own.x, i), subgroupShuffleXor(own.y, i));
    return own;
}

// The sum over the invocations before this one, and over all. `side` is 0 and 1 in turn.
uvec2 scan(uint x, uint side) {
    const uint upto = subgroupInclusiveAdd(x);
    if (gl_SubgroupInvocationID + 1u == gl_SubgroupSize) scan_parts[side * kMaxParts + gl_SubgroupID] = upto;
    barrier();
    uvec2 sum = uvec2(0u);
    for (uint i = 0u; i < gl_NumSubgroups; i += gl_SubgroupSize) {
        const uint at = i + gl_SubgroupInvocationID;
        if (at < gl_NumSubgroups) {
            const uint part = scan_parts[side * kMaxParts + at];
            sum += uvec2(at < gl_SubgroupID ? part : 0u, part);
        }
    }
    return sum_of_pairs(sum) + uvec2(upto - x, 0u);
}

#endif
