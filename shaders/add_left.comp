#version 460
// Computes: the sums of what leaves the windows of single streams before a prompt chunk (lib/device/kernels.h,
// AddLeftArgs). The pages stay: the host takes them out of its tables afterwards.
// Shapes: tables of n_streams streams. Launch: a subgroup for each stream.
// Numerics: f32, token by token.
#extension GL_GOOGLE_include_directive : require
#include "common/left.glsl"

layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Arguments { AddLeftPush a; };
layout(push_constant) uniform Push { Arguments p; };

void add_stream(uint index) {
    const uint window = SharedCells(p.a.tables.window).v[index];
    if (window == 0u || is_local(index, p.a.n_kv_heads, p.a.global_every)) return;
    const uint first = SharedCells(p.a.tables.row_begin).v[index];
    const Stream s = Stream(index, first, 0u, SharedCells(p.a.tables.n_pages).v[index]);
    const uint rank = left_rank(p.a.tables, index, p.a.n_kv_heads, p.a.global_every);
    for (uint row = p.a.front_pages; row < s.n && !is_filling(p.a.tables, s, row); ++row) {
        if (!ends_by(p.a.tables, s, row, window, p.a.n_tokens + 1u)) break;
        add_left_page(p.a.tables, p.a.left, rank, s, row);
    }
}

void main() {
    const uint n_together = gl_NumWorkGroups.x * gl_NumSubgroups;
    for (uint s = gl_WorkGroupID.x * gl_NumSubgroups + gl_SubgroupID; s < p.a.n_streams; s += n_together) add_stream(s);
}
