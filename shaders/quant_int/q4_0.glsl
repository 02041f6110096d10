// Q4_0 in integers. Layout: quant/q4_0.glsl; contract: common/step_rows.glsl.
#include "common/int_weight.glsl"

struct Raw {
    uvec4 nibbles;
    uint scale;
};

Raw load_raw(uvec2 data, uint n, uint b) { return Raw(Quads(data).v[b], u16_at(Words(data), 4u * n, b)); }

float dot_raw(Raw raw, Input x) {
    return half_of(raw.scale) * x.scale * float(dot_block(nibble_bytes(raw.nibbles), x) - 8 * x.sum);
}
