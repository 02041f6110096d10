// Q8_0 in integers. Layout: quant/q8_0.glsl; contract: common/step_rows.glsl.
#include "common/int_weight.glsl"

struct Raw {
    uvec4 bytes[2];
    uint scale;
};

Raw load_raw(uvec2 data, uint n, uint b) {
    Quads p = Quads(data);
    return Raw(uvec4[2](p.v[b], p.v[n + b]), u16_at(Words(data), 8u * n, b));
}

float dot_raw(Raw raw, Input x) { return half_of(raw.scale) * x.scale * float(dot_block(raw.bytes, x)); }
