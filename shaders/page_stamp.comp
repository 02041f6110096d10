#version 460
// Computes: page_stamp (lib/ops/page_stamp_ref.cpp); with a state, of its step, and nothing if the step is late.
// Shapes: as in PageStampArgs. Launch: a workgroup for each KV head.
// Numerics: as the reference, bit for bit.
#extension GL_GOOGLE_include_directive : require
#include "common/exact.glsl"
#include "common/top_rows.glsl"
#include "pages.h"

layout(push_constant, std430) uniform Push { PageStampPush a; };
// What other invocations wrote is read.
layout(buffer_reference, std430, buffer_reference_align = 4) coherent buffer Scores { float v[]; };

uint stream, n, table, now;

bool is_ranked(uint row) {
    return a.rank_all != 0u || (row + 1u < n && (Words(a.flags).v[table + row] & kFlagStays) == 0u);
}
uint key_of(uint row) {
    const uint key = ordered_key(Scores(a.last_score).v[table + row]);
    return is_ranked(row) ? key : kKeyNever;
}
void hit(uint row) {
    const uint before = Cells(a.stamp).v[table + row];
    if (!is_null(a.gap) && now > before) Cells(a.gap).v[table + row] = max(Cells(a.gap).v[table + row], now - before);
    Cells(a.stamp).v[table + row] = now;
}
void take(uint row, uint key, uint place) { hit(row); }

// The weight of the page at index `place`: the mean or the maximum over the group's heads.
float group_weight(uint place) {
    const uint group = a.n_heads / a.n_kv_heads, first = stream * group * a.capacity + place;
    precise float w = Floats(a.weight).v[first];
    for (uint g = 1u; g < group; ++g) {
        const float next = Floats(a.weight).v[first + g * a.capacity];
        w = a.by_threshold == 0u ? w + next : w < next ? next : w;
    }
    return a.by_threshold != 0u ? w : quotient(w, float(group));
}

void main() {
    if (!is_null(a.state) && Words(a.state).v[kStateLate] != 0u) return;
    stream = gl_WorkGroupID.x;
    n = Words(a.n_pages).v[stream];
    table = stream * a.capacity;
    now = is_null(a.state) ? a.now : Words(a.state).v[kStateTokens] + 1u;
    Scores score = Scores(a.last_score);
    const bool is_listed = !is_null(a.select);
    for (uint row = invocation(); row < n; row += kThreads)
        score.v[table + row] = is_listed ? 0.0 : group_weight(row);
    if (is_listed) {
        memoryBarrierBuffer();
        barrier();
        const uint n_listed = Words(a.n_select).v[stream];
        for (uint place = invocation(); place < n_listed; place += kThreads)
            score.v[table + Words(a.select).v[table + place]] = group_weight(place);
        memoryBarrierBuffer();
        barrier();
    }
    uint n_ranked = 0u;
    for (uint row = invocation(); row < n; row += kThreads) {
        if (is_ranked(row)) ++n_ranked;
        const float w = score.v[table + row];
        const bool is_above = a.by_threshold != 0u && !is_nan(w) && w > a.alpha;
        if (row + 1u == n || is_above) hit(row);
    }
    if (a.by_threshold != 0u) return;
    precise float best = a.r * float(workgroup_count(n_ranked));
    take_best(n, uint(ceil(best)));
}
