#version 460
// Computes: copies of pages in host memory in slots of the pool, or the other way round.
// Shapes: pages [n, page_quads], slots [n]. Launch: a workgroup for each page, further ones in steps of the grid.
#extension GL_GOOGLE_include_directive : require
#include "common/moves.glsl"

layout(push_constant, std430) uniform Push { CopyPagesPush a; };

void main() {
    for (uint i = gl_WorkGroupID.x; i < a.n; i += gl_NumWorkGroups.x) {
        const uvec2 page = nth_page(a.pages, i, a.page_quads);
        const uvec2 slot = nth_page(a.pool, Words(a.slots).v[i], a.page_quads);
        copy_page(a.is_in != 0u ? slot : page, a.is_in != 0u ? page : slot, a.page_quads);
    }
}
