// Whole pages from one place to another, by a workgroup.
#ifndef WEIR_MOVES_GLSL
#define WEIR_MOVES_GLSL
#include "common/pages.glsl"
#include "moves.h"

layout(local_size_x = 256) in;

layout(buffer_reference, std430, buffer_reference_align = 16) writeonly buffer OutQuads { uvec4 v[]; };

// The page of this number from an address on.
uvec2 nth_page(uvec2 pages, uint n, uint page_quads) { return plus(pages, n, 16u * page_quads); }

void copy_page(uvec2 to, uvec2 from, uint page_quads) {
    for (uint i = gl_LocalInvocationIndex; i < page_quads; i += kInvocations) OutQuads(to).v[i] = Quads(from).v[i];
}

#endif
