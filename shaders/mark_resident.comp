#version 460
// Computes: a bit for each table row whose page is in the pool.
// Shapes: resident [n_streams, n_words]. Launch: an invocation for each word, further ones in steps of the grid.
#extension GL_GOOGLE_include_directive : require
#include "common/memory.glsl"
#include "moves.h"

layout(local_size_x = 256) in;
layout(push_constant, std430) uniform Push { MarkResidentPush a; };

void main() {
    const uint n = a.n_streams * a.n_words;
    for (uint i = gl_GlobalInvocationID.x; i < n; i += gl_NumWorkGroups.x * kInvocations) {
        const uint s = i / a.n_words, row = (i - s * a.n_words) * 32u;
        const uint first = Words(a.row_begin).v[s], end = Words(a.n_pages).v[s];
        uint word = 0u;
        for (uint bit = 0u; bit < 32u && row + bit < end; ++bit)
            word |= (Words(a.slots).v[first + row + bit] != kNoSlotWord ? 1u : 0u) << bit;
        OutWords(a.resident).v[i] = word;
    }
}
