// Q5_1 in integers. Layout: quant/q5_1.glsl; contract: common/step_rows.glsl.
#include "common/int_weight.glsl"

struct Raw {
    uvec4 nibbles;
    uint high, pair;  // scale and minimum
};

Raw load_raw(uvec2 data, uint n, uint b) {
    Words p = Words(data);
    return Raw(Quads(data).v[b], p.v[4u * n + b], p.v[5u * n + b]);
}

float dot_raw(Raw raw, Input x) {
    const float scale = half_of(raw.pair & 0xFFFFu), minimum = half_of(raw.pair >> 16);
    const int dot = dot_block(five_bit_bytes(raw.nibbles, raw.high), x);
    return x.scale * (scale * float(dot) + minimum * float(x.sum));
}
