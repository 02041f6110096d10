#version 460
// Computes: the best of the candidates of top_parts, sorted: by logit, then by the lower id.
// Shapes: as in TopLogitsPush; n is at most kMaxTop. Launch: one workgroup.
// Numerics: exact.
#extension GL_GOOGLE_include_directive : require
#include "common/top_rows.glsl"
#include "pages.h"

layout(push_constant, std430) uniform Push { TopLogitsPush a; };

shared uvec2 sorted[kMaxTop];  // key and id

uint key_of(uint row) { return Words(a.candidates).v[2u * row]; }
void take(uint row, uint key, uint place) { sorted[place] = uvec2(key, Words(a.candidates).v[2u * row + 1u]); }

bool comes_before(uvec2 x, uvec2 y) { return x.x > y.x || (x.x == y.x && x.y < y.y); }

// A bitonic sort; `size` is a power of two.
void sort_all(uint size) {
    for (uint run = 2u; run <= size; run *= 2u) {
        for (uint step = run / 2u; step > 0u; step /= 2u) {
            barrier();
            for (uint pair = invocation(); pair < size / 2u; pair += kThreads) {
                const uint low = 2u * pair - (pair & (step - 1u)), high = low + step;
                const uvec2 first = sorted[low], second = sorted[high];
                if (comes_before(second, first) == ((low & run) == 0u)) {
                    sorted[low] = second;
                    sorted[high] = first;
                }
            }
        }
    }
    barrier();
}

void main() {
    uint size = 1u;
    while (size < a.n) size *= 2u;
    for (uint i = invocation(); i < size; i += kThreads) sorted[i] = uvec2(kKeyNever, 0xFFFFFFFFu);
    barrier();
    take_best(a.n_candidates, a.n);
    sort_all(size);
    for (uint i = invocation(); i < a.n; i += kThreads) {
        OutWords(a.ids).v[i] = sorted[i].y;
        OutWords(a.values).v[i] = floatBitsToUint(float_of_key(max(sorted[i].x, kKeyOfNothing)));
    }
}
