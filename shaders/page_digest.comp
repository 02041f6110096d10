#version 460
// Computes: digests of pages from their keys (lib/ops/page_digest_ref.cpp): of the full pages among some table rows, or
// of each stream's last page, however full.
// Shapes: digests of digest_elements(kind, head_dim), pages in the pool. Launch: a workgroup for each row, further ones
// in steps of the grid; a stream along y. An invocation has two neighbouring channels, of which a word holds one number
// each.
// Numerics: f32 in the reference's order, rounded once.
#extension GL_GOOGLE_include_directive : require
#include "attn.h"

layout(push_constant, std430) uniform Push { PageDigestPush a; };

#include "common/digest.glsl"

void main() {
    const uint stream = gl_WorkGroupID.y, n_pages = Words(a.n_pages).v[stream];
    const bool is_last = is_null(a.first_row);
    if (is_last && n_pages == 0u) return;
    const uint begin = is_last ? n_pages - 1u : Words(a.first_row).v[stream];
    const uint end = begin < n_pages ? min(n_pages - begin, a.n_rows) + begin : begin;
    for (uint row = begin + gl_WorkGroupID.x; row < end; row += gl_NumWorkGroups.x) {
        const uint at = stream * a.capacity + row, n = Words(a.len).v[at], slot = Words(a.slots).v[at];
        // The same for the whole workgroup: no lane is left at a barrier.
        if (slot == kNoSlotWord || (is_last ? n == 0u : n < kPageRows)) continue;
        const uvec2 digest = plus(a.digests, a.digest_by_row != 0u ? at : slot, 4u * words_of_digest());
        digest_page(Words(page_at(a.pool, slot, a.head_dim)), n, OutWords(digest));
    }
}
