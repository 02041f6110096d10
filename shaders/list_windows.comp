#version 460
// Computes: lists of all rows in use for the streams that have windows of their own; the others' stay as they are.
// Shapes: select [n_lists, capacity]. Launch: a workgroup for each list.
#extension GL_GOOGLE_include_directive : require
#include "common/memory.glsl"
#include "common/subgroup.glsl"
#include "pages.h"

layout(push_constant, std430) uniform Push { ListWindowsPush a; };

void main() {
    const uint list = gl_WorkGroupID.x, kv_head = list / (a.n_lists / a.n_kv_heads);
    if (Words(a.windows).v[kv_head] == 0u) return;
    const uint n = Words(a.n_pages).v[kv_head];
    for (uint row = gl_LocalInvocationIndex; row < n; row += kInvocations)
        OutWords(a.select).v[list * a.capacity + row] = row;
    if (gl_LocalInvocationIndex == 0u) OutWords(a.n_select).v[list] = n;
}
