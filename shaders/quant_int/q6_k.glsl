// Q6_K in integers. Layout: quant/q6_k.glsl; contract: common/step_rows.glsl.
#include "common/int_weight.glsl"

struct Raw {
    uvec4 nibbles;
    uvec2 high;
    uint subs, scale;
};

Raw load_raw(uvec2 data, uint n, uint b) {
    Words p = Words(data);
    return Raw(Quads(data).v[b], Pairs(data).v[2u * n + b], u16_at(p, 6u * n, b), u16_at(p, n / 8u * 52u, b >> 3));
}

// 32 less than each of the bytes 0..63.
uvec4 centred(uvec4 w) { return (w | 0x80808080u) - 0x20202020u ^ 0x80808080u; }

uvec4 high_bits(uint w) { return (uvec4(w, w >> 2, w >> 4, w >> 6) & 0x03030303u) << 4; }

// The sum of both halves with their scales is below 2^31: 2 * 16 * 32 * 16,256 * 128.
float dot_raw(Raw raw, Input x) {
    const uvec4 low[2] = nibble_bytes(raw.nibbles);
    const int first = dot_half(centred(low[0] | high_bits(raw.high.x)), x, 0u);
    const int second = dot_half(centred(low[1] | high_bits(raw.high.y)), x, 1u);
    const int dot = bitfieldExtract(int(raw.subs), 0, 8) * first + bitfieldExtract(int(raw.subs), 8, 8) * second;
    return half_of(raw.scale) * x.scale * float(dot);
}
