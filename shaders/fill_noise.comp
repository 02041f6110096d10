#version 460
// Computes: numbers in [-1, 1) from a hash of their place and the seed, for benchmarks.
// Shapes: pool [n_words] of two bf16. Launch: any number of workgroups.
// Numerics: truncated to bf16, so that no number becomes 1.
#extension GL_GOOGLE_include_directive : require
#include "common/keys.glsl"
#include "pages.h"

layout(push_constant, std430) uniform Push { FillNoisePush a; };

// Jarzynski and Olano, "Hash Functions for GPU Rendering", JCGT 9(3), 2020: pcg3d.
uvec3 mixed(uvec3 v) {
    v = v * 1664525u + 1013904223u;
    v.x += v.y * v.z;
    v.y += v.z * v.x;
    v.z += v.x * v.y;
    v ^= v >> 16;
    v.x += v.y * v.z;
    v.y += v.z * v.x;
    v.z += v.x * v.y;
    return v;
}

uint noise(uint bits) { return floatBitsToUint(float(int(bits) >> 8) * 1.1920928955078125e-7) >> 16; }

void main() {
    for (uint i = gl_WorkGroupID.x * kInvocations + invocation(); i < a.n_words;
         i += gl_NumWorkGroups.x * kInvocations) {
        const uvec3 hash = mixed(uvec3(i, a.seed_low + a.part * 0x9E3779B9u, a.seed_high));
        OutWords(a.pool).v[i] = noise(hash.x) | noise(hash.y) << 16;
    }
}
