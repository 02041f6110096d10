// The tokens of delta_net and mamba2, one after another, of some columns of a head's sums. The sums stay in registers:
// a team of eight lanes has two columns, and a lane every eighth row of them. A few tokens at a time are convolved into
// shared memory first; each of a head's workgroups convolves the head's keys and queries for itself.
//
// The shader that includes it defines WEIR_DELTA as 1 or 0.
#ifndef WEIR_RECURRENT_SCAN_GLSL
#define WEIR_RECURRENT_SCAN_GLSL
#extension GL_EXT_control_flow_attributes : require
#include "common/recurrent.glsl"
#include "common/team.glsl"
#include "recurrent.h"

layout(constant_id = 2) const uint kRows = 16;  // of a lane: heads of up to 8 * kRows keys

layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Arguments { RecurrentScanArgs a; };
layout(push_constant) uniform Push { Arguments p; };
layout(buffer_reference, std430, buffer_reference_align = 8) buffer Pairs { vec2 v[]; };

const uint kKeys = kRows * kTeamLanes;
const uint kWidth = 2u * kKeys + kScanColumns;  // q, k (both with zeros behind them), v

shared float tile[kScanTokens * kWidth];  // after the convolution
// For each of these tokens the factor of the sums, and what is written of the new value; in the delta rule also the
// inverse lengths of q and k, and their product.
shared float decay_of[kScanTokens], write_of[kScanTokens], q_scale[kScanTokens], k_scale[kScanTokens], kq[kScanTokens];

uint head, key_head, first_column;
bool second;  // is current

uint invocation() { return gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID; }

Floats rows_before() { return Floats(second ? p.a.rows[1] : p.a.rows[0]); }
Floats rows_after() { return Floats(second ? p.a.rows[0] : p.a.rows[1]); }

const uint kNoChannel = 0xFFFFFFFFu;

// Channel of column c of the tile.
uint channel_of(uint c) {
    if (c < 2u * kKeys) {
        const uint i = c % kKeys;
        if (i >= p.a.key_dim) return kNoChannel;
        return (c < kKeys ? p.a.first_q : p.a.first_k) + key_head * p.a.key_dim + i;
    }
    const uint column = first_column + c - 2u * kKeys;
    return column < p.a.value_dim ? p.a.first_v + head * p.a.value_dim + column : kNoChannel;
}

// Input of a channel in row `at`, counted from the state's oldest row.
float input_at(uint channel, uint at) {
    const uint n_before = p.a.n_taps - 1u;
    return at < n_before ? rows_before().v[at * p.a.n_channels + channel]
                         : Floats(p.a.x).v[(at - n_before) * p.a.stride + channel];
}

float convolved(uint channel, uint tok) {
    if (channel == kNoChannel) return 0.0;
    float sum = is_null(p.a.bias) ? 0.0 : Floats(p.a.bias).v[channel];
    for (uint j = 0u; j < p.a.n_taps; ++j)
        sum = fma(Floats(p.a.weight).v[channel * p.a.n_taps + j], input_at(channel, tok + j), sum);
    return silu(sum);
}

// One workgroup keeps the rows of a channel: of a key head's that of the first head that reads it.
void keep_rows() {
    const bool is_first =
        p.a.grouped != 0u ? head % (p.a.n_heads / p.a.n_key_heads) == 0u : head < p.a.n_key_heads;
    const uint n_before = p.a.n_taps - 1u;
    for (uint c = invocation(); c < kWidth; c += kThreads) {
        const uint channel = channel_of(c);
        if (channel == kNoChannel || (c < 2u * kKeys && !(is_first && first_column == 0u))) continue;
        for (uint i = 0u; i < n_before; ++i)
            rows_after().v[i * p.a.n_channels + channel] = input_at(channel, p.a.n_tok + i);
    }
}

// Convolves n tokens from `first` on, and what else they need.
void prepare_tokens(uint first, uint n) {
    for (uint e = invocation(); e < n * kWidth; e += kThreads)
        tile[e] = convolved(channel_of(e % kWidth), first + e / kWidth);
    if (invocation() < n) {
        const uint gate = (first + invocation()) * p.a.gate_stride + head / p.a.gate_group * p.a.group_stride +
                          head % p.a.gate_group;
        const float step = softplus(Floats(p.a.alpha).v[gate] + Floats(p.a.dt_bias).v[head]);
        decay_of[invocation()] = exp_near(Floats(p.a.a).v[head] * step);
        write_of[invocation()] = WEIR_DELTA != 0 ? sigmoid(Floats(p.a.beta).v[gate]) : step;
    }
}

#if WEIR_DELTA
void measure_lengths(uint n) {
    for (uint t = gl_SubgroupID; t < n; t += gl_NumSubgroups) {
        float qq = 0.0, kk = 0.0, product = 0.0;
        for (uint i = gl_SubgroupInvocationID; i < kKeys; i += gl_SubgroupSize) {
            const float q = tile[t * kWidth + i], k = tile[t * kWidth + kKeys + i];
            qq = fma(q, q, qq);
            kk = fma(k, k, kk);
            product = fma(k, q, product);
        }
        qq = subgroupAdd(qq);
        kk = subgroupAdd(kk);
        product = subgroupAdd(product);
        if (gl_SubgroupInvocationID != 0u) continue;
        q_scale[t] = 1.0 / sqrt((qq + 1e-6) * float(p.a.key_dim));
        k_scale[t] = 1.0 / sqrt(kk + 1e-6);
        kq[t] = q_scale[t] * k_scale[t] * product;
    }
}
#endif

vec2 sums[kRows];

// The outputs of the team's columns for token t of the tile; all lanes get them.
vec2 take_token(uint t) {
    const uint q_at = t * kWidth + team_lane(), k_at = q_at + kKeys, v_at = t * kWidth + 2u * kKeys + 2u * team();
    const vec2 v = vec2(tile[v_at], tile[v_at + 1u]);
    const float decay = decay_of[t], write = write_of[t];
    vec2 by_q = vec2(0.0);
#if WEIR_DELTA
    vec2 by_k = vec2(0.0);
    [[unroll]] for (uint r = 0u; r < kRows; ++r) {
        by_k = fma(sums[r], vec2(tile[k_at + r * kTeamLanes]), by_k);
        by_q = fma(sums[r], vec2(tile[q_at + r * kTeamLanes]), by_q);
    }
    const vec2 seen = vec2(team_sum(by_k.x), team_sum(by_k.y)) * (decay * k_scale[t]);
    const vec2 e = write * (v - seen), added = k_scale[t] * e;
#else
    const vec2 added = write * v;
#endif
    [[unroll]] for (uint r = 0u; r < kRows; ++r) {
        sums[r] = fma(vec2(tile[k_at + r * kTeamLanes]), added, decay * sums[r]);
#if !WEIR_DELTA
        by_q = fma(sums[r], vec2(tile[q_at + r * kTeamLanes]), by_q);
#endif
    }
    by_q = vec2(team_sum(by_q.x), team_sum(by_q.y));
#if WEIR_DELTA
    return q_scale[t] * decay * by_q + kq[t] * e;
#else
    return by_q + Floats(p.a.skip).v[head] * v;
#endif
}

void scan() {
    head = gl_WorkGroupID.x;
    key_head = p.a.grouped != 0u ? head / (p.a.n_heads / p.a.n_key_heads) : head % p.a.n_key_heads;
    first_column = gl_WorkGroupID.y * kScanColumns;
    second = second_is_current(p.a.current);
    const uint column = first_column + 2u * team();
    const bool has_columns = column < p.a.value_dim;
    Pairs before = Pairs(second ? p.a.sums[1] : p.a.sums[0]), after = Pairs(second ? p.a.sums[0] : p.a.sums[1]);
    // Where the lane's first row begins, in pairs of columns; and from a row to the lane's next one.
    const uint at = ((head * p.a.key_dim + team_lane()) * p.a.value_dim + column) / 2u;
    const uint step = kTeamLanes * p.a.value_dim / 2u;
    [[unroll]] for (uint r = 0u; r < kRows; ++r) {
        const bool has_row = has_columns && r * kTeamLanes + team_lane() < p.a.key_dim;
        sums[r] = has_row ? before.v[at + r * step] : vec2(0.0);
    }
    keep_rows();
    for (uint first = 0u; first < p.a.n_tok; first += kScanTokens) {
        const uint n = min(kScanTokens, p.a.n_tok - first);
        barrier();  // the tokens before are done with
        prepare_tokens(first, n);
        barrier();
#if WEIR_DELTA
        measure_lengths(n);
        barrier();
#endif
        for (uint t = 0u; t < n; ++t) {
            const vec2 o = take_token(t);
            if (has_columns && team_lane() < 2u)
                Floats(p.a.y).v[((first + t) * p.a.n_heads + head) * p.a.value_dim + column + team_lane()] =
                    team_lane() == 0u ? o.x : o.y;
        }
    }
    [[unroll]] for (uint r = 0u; r < kRows; ++r) {
        if (has_columns && r * kTeamLanes + team_lane() < p.a.key_dim) after.v[at + r * step] = sums[r];
    }
}

#endif
