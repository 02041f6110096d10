#version 460
// Computes: the window of a unit of a prompt's earlier pages, and its tables (load_unit of
// tests/runtime/host_kernels.cpp). A lost page has an entry, whose tokens are what the host says, and no contents.
// Shapes: window [n, page_quads], tables [n], n_pages [n / kUnitPages]. Launch: a workgroup for each page.
#extension GL_GOOGLE_include_directive : require
#include "common/moves.glsl"

layout(push_constant, std430) uniform Push { LoadUnitPush a; };

void main() {
    for (uint at = gl_WorkGroupID.x; at < a.n; at += gl_NumWorkGroups.x) {
        const uint place = Words(a.page_slots).v[at], where = place >> kUnitPageBits;
        const uint number = place & ((1u << kUnitPageBits) - 1u);
        if (gl_LocalInvocationIndex == 0u) {
            OutWords(a.slots).v[at] = at;
            OutWords(a.first_pos).v[at] = Words(a.unit_pos).v[at];
            OutWords(a.len).v[at] = Words(a.unit_len).v[at];
            if (at % kUnitPages == 0u) OutWords(a.n_pages).v[at / kUnitPages] = kUnitPages;
        }
        if (where > kUnitStaged) continue;
        const uvec2 pages = where == kUnitInPool ? a.pool : where == kUnitRaw ? a.raw_pages : a.pages;
        copy_page(nth_page(a.window, at, a.page_quads), nth_page(pages, number, a.page_quads), a.page_quads);
    }
}
