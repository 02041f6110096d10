#version 460
// Computes: the best logits of each part of the vocabulary, ascending by id.
// Shapes: as in TopPartsPush. Launch: a workgroup for each part.
// Numerics: exact. Of equal logits the lowest ids; NaN counts as -inf.
#extension GL_GOOGLE_include_directive : require
#include "common/top_rows.glsl"
#include "pages.h"

layout(push_constant, std430) uniform Push { TopPartsPush a; };

uint key_of(uint row) { return ordered_key(Floats(a.logits).v[gl_WorkGroupID.x * a.part_rows + row]); }
void take(uint row, uint key, uint place) {
    const uint at = 2u * (gl_WorkGroupID.x * a.n + place);
    OutWords(a.candidates).v[at] = key;
    OutWords(a.candidates).v[at + 1u] = gl_WorkGroupID.x * a.part_rows + row;
}

void main() {
    const uint n_rows = min(a.part_rows, a.vocab_size - gl_WorkGroupID.x * a.part_rows);
    take_best(n_rows, a.n);
}
