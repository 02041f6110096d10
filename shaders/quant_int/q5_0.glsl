// Q5_0 in integers. Layout: quant/q5_0.glsl; contract: common/step_rows.glsl.
#include "common/int_weight.glsl"

struct Raw {
    uvec4 nibbles;
    uint high, scale;
};

Raw load_raw(uvec2 data, uint n, uint b) {
    Words p = Words(data);
    return Raw(Quads(data).v[b], p.v[4u * n + b], u16_at(p, 5u * n, b));
}

float dot_raw(Raw raw, Input x) {
    const int dot = dot_block(five_bit_bytes(raw.nibbles, raw.high), x) - 16 * x.sum;
    return half_of(raw.scale) * x.scale * float(dot);
}
