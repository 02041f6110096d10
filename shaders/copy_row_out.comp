#version 460
// Computes: copies of the pages with one position, of every stream that has it (copy_row_out of
// tests/runtime/host_kernels.cpp). A stream with a window begins at some later page.
// Shapes: pages [n_streams, page_quads]. Launch: a workgroup for each stream, further ones in steps of the grid.
#extension GL_GOOGLE_include_directive : require
#include "common/moves.glsl"

layout(push_constant, std430) uniform Push { CopyRowOutPush a; };

void main() {
    for (uint s = gl_WorkGroupID.x; s < a.n_streams; s += gl_NumWorkGroups.x) {
        const uint first = Words(a.row_begin).v[s];
        uint row = a.row;
        if (Words(a.window).v[s] != 0u) row -= Words(a.first_pos).v[first] / kPageRows;
        if (row >= Words(a.n_pages).v[s]) continue;
        const uint slot = Words(a.slots).v[first + row];
        copy_page(nth_page(a.pages, s, a.page_quads), nth_page(a.pool, slot, a.page_quads), a.page_quads);
    }
}
