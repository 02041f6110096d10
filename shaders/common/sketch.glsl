// What sketches of keys and of queries share (lib/ops/sketch.h): rotated rows in shared memory, by a workgroup.
// Numerics: sums and differences in f32, in the reference's order; quotients are rounded to nearest, as there.
#ifndef WEIR_SKETCH_GLSL
#define WEIR_SKETCH_GLSL
#include "attn.h"
#include "common/memory.glsl"

const uint kSketchChannels = 16u, kSketchMask = 0x03030303u;
const uint kSketchInfinite = 0x7F80u;
const float kSketchMost = 1e15, kHalfStep = 0.4979;
const uint kSketchRows = 8u;

shared float sketch_rows[kSketchRows * kMaxChannels];

uint sketch_block(uint d) { return d & (~d + 1u); }
uint sketch_words(uint d) { return (d + kSketchChannels - 1u) / kSketchChannels; }

// Drivers may give quotients with an error of some units.
float divided(float x, float y) {
    precise float quotient = x / y;
    precise float rest = fma(-quotient, y, x) / y;
    return abs(rest) < abs(quotient) ? quotient + rest : quotient;  // not where x is 0 or something is not finite
}

// Rotates sketch_rows [n, d], which all invocations have written; all of them must call it, and may read then.
void rotate_rows(uint n, uint d) {
    const uint block = sketch_block(d);
    barrier();
    for (uint half_size = 1u; half_size < block; half_size *= 2u) {
        for (uint i = gl_LocalInvocationID.x; i < n * d / 2u; i += kInvocations) {
            const uint row = i / (d / 2u), pair = i % (d / 2u);
            const uint at = row * d + pair / half_size * 2u * half_size + pair % half_size;
            precise float x = sketch_rows[at], y = sketch_rows[at + half_size];
            precise float sum = x + y, difference = x - y;
            sketch_rows[at] = sum;
            sketch_rows[at + half_size] = difference;
        }
        barrier();
    }
}

#endif
