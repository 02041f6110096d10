#version 460
// Computes: page_accumulate (lib/ops/page_accumulate_ref.cpp).
// Shapes: as in PageAccumulateArgs. Launch: a workgroup for each KV head.
// Numerics: as the reference, bit for bit; kAccumulateNoisy within 1e-6 of it.
#extension GL_GOOGLE_include_directive : require
#include "common/exact.glsl"
#include "common/keys.glsl"
#include "common/random_order.glsl"
#include "pages.h"
#if WEIR_ACCUMULATE_RULES != 5
#error "page_accumulate: other rules"
#endif

layout(push_constant, std430) uniform Push { PageAccumulatePush a; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Marks { uint v[]; };

float mass_of(uint head, uint row) { return Floats(a.weight).v[head * a.capacity + row]; }

// noise_factor of lib/ops/step_rules.h.
float noise_factor(uint stream, uint page_pos) {
    precise float u = (float(random_order(a.seed, stream, 0u, page_pos).y >> 9) + 0.5) * 1.1920929e-7;
    precise float rest = 1.0 - u;
    return 1.0 / (u < 0.5 ? -log_near(u) : log1p_near(rest / u));
}

// tau_at of lib/ops/rules.h.
float tau_now() {
    const uint n = Words(a.n_tokens).v[0] + 1u;
    return a.tau + (a.tau_end - a.tau) * (n < a.tau_tokens ? float(n) / float(a.tau_tokens) : 1.0);
}

float noisy_weight(uint kv_head, uint head, uint row, float tau) {
    const float factor = noise_factor(a.first_stream + kv_head, Words(a.first_pos).v[kv_head * a.capacity + row]);
    const float x = mass_of(head, row) * factor;
    return x >= 1.17549435e-38 ? exp_near(log_near(x) / tau) : 0.0;
}

// All invocations call it.
void add_noisy(uint kv_head, uint n, uint group) {
    const float tau = tau_now();
    for (uint head = kv_head * group; head < (kv_head + 1u) * group; ++head) {
        float own = 0.0;
        for (uint row = invocation(); row < n; row += kInvocations) own += noisy_weight(kv_head, head, row, tau);
        const float sum = workgroup_sum(own);
        for (uint row = invocation(); row < n && sum > 0.0; row += kInvocations)
            Floats(a.score).v[kv_head * a.capacity + row] += noisy_weight(kv_head, head, row, tau) / sum;
    }
}

// Whether a head of the group gives the page at least as much as its tokens have on average of all so far.
bool is_hit(uint kv_head, uint row, uint group) {
    const float n = float(Words(a.n_tokens).v[0] + 1u), len = float(Words(a.len).v[kv_head * a.capacity + row]);
    bool hit = false;
    for (uint head = kv_head * group; head < (kv_head + 1u) * group; ++head) {
        precise float times = mass_of(head, row) * n;
        hit = hit || times >= len;
    }
    return hit;
}

// The score of a row by any rule but the noisy one.
float score_of(uint kv_head, uint row, uint group) {
    const uint at = kv_head * a.capacity + row;
    if (a.rule == kAccumulateHits) {
        precise float kept = a.keep * Floats(a.score).v[at];
        precise float score = kept + (is_hit(kv_head, row, group) ? 1.0 : 0.0);
        return score;
    }
    const bool is_layer = a.rule == kAccumulateLatestLayer;
    const uint first = is_layer ? 0u : kv_head * group, n_heads = is_layer ? a.n_heads : group;
    precise float sum = 0.0;
    for (uint head = first; head < first + n_heads; ++head) sum += mass_of(head, row);
    if (a.rule == kAccumulateSum) {
        sum = Floats(a.score).v[at] + sum;
        return sum;
    }
    return quotient(quotient(sum, float(n_heads)), float(Words(a.len).v[at]));
}

void main() {
    const uint kv_head = gl_WorkGroupID.x, table = kv_head * a.capacity, group = a.n_heads / a.n_kv_heads;
    const uint n = Words(a.n_pages).v[kv_head];
    if (a.rule == kAccumulateNoisy) add_noisy(kv_head, n, group);
    uint min_key = kKeyAlways, min_row = 0xFFFFFFFFu;
    for (uint row = invocation(); row < n; row += kInvocations) {
        if (a.rule != kAccumulateNoisy) Floats(a.score).v[table + row] = score_of(kv_head, row, group);
        if (is_null(a.mark) || row + 1u == n || (Words(a.flags).v[table + row] & kFlagStays) != 0u) continue;
        const uint key = ordered_key(Floats(a.score).v[table + row]);
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
