#version 460
// Computes: the best logits of each part of the vocabulary, ascending by id.
// Shapes: as in TopPartsPush. Launch: a workgroup for each part.
// Numerics: exact. Of equal logits the lowest ids; NaN counts as -inf. What the mask lacks has kKeyNever.
#extension GL_GOOGLE_include_directive : require
#include "common/top_rows.glsl"
#include "pages.h"

layout(push_constant, std430) uniform Push { TopPartsPush a; };

uint key_of(uint row) {
    const uint token = gl_WorkGroupID.x * a.part_rows + row;
    if (!is_null(a.mask) && (Words(a.mask).v[token / 32u] >> (token % 32u) & 1u) == 0u) return kKeyNever;
    return ordered_key(Floats(a.logits).v[token]);
}
void take(uint row, uint key, uint place) {
    const uint at = 2u * (gl_WorkGroupID.x * a.n + place);
    OutWords(a.candidates).v[at] = key;
    OutWords(a.candidates).v[at + 1u] = gl_WorkGroupID.x * a.part_rows + row;
}

void main() {
    const uint n_rows = min(a.part_rows, a.vocab_size - gl_WorkGroupID.x * a.part_rows);
    const uint n_taken = take_best(n_rows, a.n);
    for (uint i = n_taken + invocation(); i < min(a.n, n_rows); i += kThreads) take(0u, kKeyNever, i);
}
