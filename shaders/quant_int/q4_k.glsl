// Q4_K in integers. Layout: quant/q4_k.glsl; contract: common/step_rows.glsl.
#include "common/int_weight.glsl"

struct Raw {
    uvec4 nibbles, header;
    uint b;
};

Raw load_raw(uvec2 data, uint n, uint b) {
    Quads p = Quads(data);
    return Raw(p.v[b], p.v[n + (b >> 3)], b);
}

float dot_raw(Raw raw, Input x) {
    const vec2 step = k_step(raw.header, raw.b);
    return x.scale * (step.x * float(dot_block(nibble_bytes(raw.nibbles), x)) - step.y * float(x.sum));
}
