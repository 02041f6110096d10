#version 460
// Computes: page_accumulate (lib/ops/page_accumulate_ref.cpp).
// Shapes: as in PageAccumulateArgs. Launch: a workgroup for each KV head.
// Numerics: as the reference, bit for bit.
#extension GL_GOOGLE_include_directive : require
#include "common/exact.glsl"
#include "common/keys.glsl"
#include "pages.h"
#if WEIR_ACCUMULATE_RULES != 3
#error "page_accumulate: other rules"
#endif

layout(push_constant, std430) uniform Push { PageAccumulatePush a; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Marks { uint v[]; };

void main() {
    const uint stream = gl_WorkGroupID.x, table = stream * a.capacity, group = a.n_heads / a.n_kv_heads;
    const uint n = Words(a.n_pages).v[stream];
    const bool is_layer = a.rule == kAccumulateLatestLayer;
    const uint first = is_layer ? 0u : stream * group, n_heads = is_layer ? a.n_heads : group;
    Floats weight = Floats(a.weight), score = Floats(a.score);
    uint min_key = kKeyAlways, min_row = 0xFFFFFFFFu;
    for (uint row = invocation(); row < n; row += kInvocations) {
        precise float sum = 0.0;
        for (uint head = first; head < first + n_heads; ++head) sum += weight.v[head * a.capacity + row];
        if (a.rule == kAccumulateSum) {
            sum = score.v[table + row] + sum;
        } else {
            sum = quotient(quotient(sum, float(n_heads)), float(Words(a.len).v[table + row]));
        }
        score.v[table + row] = sum;
        if (is_null(a.mark) || row + 1u == n || (Words(a.flags).v[table + row] & kFlagStays) != 0u) continue;
        const uint key = ordered_key(sum);
        if (key < min_key) {
            min_key = key;
            min_row = row;
        }
    }
    if (is_null(a.mark) || n != a.capacity) return;
    const uint key = workgroup_least(min_key);
    const uint row = workgroup_least(min_key == key ? min_row : 0xFFFFFFFFu);
    if (invocation() == 0u && key != kKeyAlways) ++Marks(a.mark).v[table + row];
}
