#version 460
// Computes: to = from.
// Shapes: [n_quads] of 16 bytes. Launch: any number of workgroups.
#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#include "common/moves.glsl"
#include "pages.h"

layout(push_constant, std430) uniform Push { CopyMemoryPush a; };

const uint kAhead = 8u;  // quads of an invocation that are loaded before any of them is stored

void main() {
    const uint all = gl_NumWorkGroups.x * kInvocations;
    for (uint first = gl_GlobalInvocationID.x; first < a.n_quads; first += kAhead * all) {
        uvec4 quads[kAhead];
        [[unroll]] for (uint i = 0u; i < kAhead; ++i) quads[i] = Quads(a.from).v[min(first + i * all, a.n_quads - 1u)];
        [[unroll]] for (uint i = 0u; i < kAhead; ++i) {
            if (first + i * all < a.n_quads) OutQuads(a.to).v[first + i * all] = quads[i];
        }
    }
}
