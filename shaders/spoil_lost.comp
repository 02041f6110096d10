#version 460
// Computes: NaN in the digests of rows that have neither a slot nor a copy: worse than any other.
// Shapes: digests of digest_words by row. Launch: a workgroup for each stream, further ones in steps of the grid.
#extension GL_GOOGLE_include_directive : require
#include "common/leave.glsl"
#include "common/pages.glsl"
#include "moves.h"

layout(push_constant, std430) uniform Push { SpoilLostPush a; };

void main() {
    for (uint s = gl_WorkGroupID.x; s < a.n_streams; s += gl_NumWorkGroups.x) {
        if (Words(a.window).v[s] != 0u) continue;
        const uint first = Words(a.row_begin).v[s], end = first + Words(a.n_pages).v[s];
        for (uint row = first + gl_LocalInvocationIndex; row < end; row += kInvocations) {
            if (Words(a.slots).v[row] != kNoSlotWord || Words(a.raw_index).v[row] != kNoCopyWord) continue;
            OutWords digest = OutWords(plus(a.digests, row, 4u * a.digest_words));
            for (uint i = 0u; i < a.digest_words; ++i) digest.v[i] = kTwoNan;
        }
    }
}
