// Q5_K in integers. Layout: quant/q5_k.glsl; contract: common/step_rows.glsl.
#include "common/int_weight.glsl"

struct Raw {
    uvec4 nibbles, header;
    uint high, b;
};

Raw load_raw(uvec2 data, uint n, uint b) {
    Quads p = Quads(data);
    return Raw(p.v[b], p.v[n / 4u * 5u + (b >> 3)], Words(data).v[4u * n + b], b);
}

float dot_raw(Raw raw, Input x) {
    const vec2 step = k_step(raw.header, raw.b);
    const int dot = dot_block(five_bit_bytes(raw.nibbles, raw.high), x);
    return x.scale * (step.x * float(dot) - step.y * float(x.sum));
}
