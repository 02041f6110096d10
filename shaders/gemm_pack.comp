#version 460
// Computes: rows of x in f16, divided by the largest |x| of each, which keeps f16's 11 bits whatever the range. A row
// of zeros has scale 0; one with an infinity or a NaN has scale NaN, and zeros.
// Shapes: x [n_tok, 8 * n_eights] in f32, out the same in f16, scales [n_tok].
// Launch: a workgroup for each row, further rows in steps of the grid.
// Numerics: an exact maximum, a division and a rounding.
#extension GL_GOOGLE_include_directive : require
#include "common/memory.glsl"
#include "common/subgroup.glsl"

layout(push_constant, std430) uniform Push { GemmPackPush a; };
layout(buffer_reference, std430, buffer_reference_align = 16) writeonly buffer Eights { uvec4 v[]; };

const uint kInfinity = 0x7F800000u;
shared uint subgroup_most[kMaxSubgroups];

uint magnitude(vec4 v) {
    const uvec4 m = floatBitsToUint(v) & 0x7FFFFFFFu;  // ordered as the values, infinities and NaN on top
    return max(max(m.x, m.y), max(m.z, m.w));
}

uint largest_of(uint first) {
    uint most = 0u;
    for (uint i = gl_LocalInvocationID.x; i < 2u * a.n_eights; i += kInvocations)
        most = max(most, magnitude(Vectors(a.x).v[first + i]));
    most = subgroupMax(most);
    barrier();  // those of the row before may still be read
    if (gl_SubgroupInvocationID == 0u) subgroup_most[gl_SubgroupID] = most;
    barrier();
    for (uint i = 0u; i < gl_NumSubgroups; ++i) most = max(most, subgroup_most[i]);
    return most;
}

void main() {
    for (uint row = gl_WorkGroupID.x; row < a.n_tok; row += gl_NumWorkGroups.x) {
        const uint first = row * 2u * a.n_eights, most = largest_of(first);
        const float scale = uintBitsToFloat(most < kInfinity ? most : 0x7FC00000u);
        if (gl_LocalInvocationID.x == 0u) Floats(a.scales).v[row] = scale;
        const bool is_plain = most > 0u && most < kInfinity;
        for (uint i = gl_LocalInvocationID.x; i < a.n_eights; i += kInvocations) {
            uvec4 out_eight = uvec4(0u);
            if (is_plain) {
                const vec4 lo = Vectors(a.x).v[first + 2u * i] / scale;
                const vec4 hi = Vectors(a.x).v[first + 2u * i + 1u] / scale;
                out_eight = uvec4(packHalf2x16(lo.xy), packHalf2x16(lo.zw), packHalf2x16(hi.xy), packHalf2x16(hi.zw));
            }
            Eights(a.out_rows).v[row * a.n_eights + i] = out_eight;
        }
    }
}
