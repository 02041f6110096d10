// Q4_1 in integers. Layout: quant/q4_1.glsl; contract: common/step_rows.glsl.
#include "common/int_weight.glsl"

struct Raw {
    uvec4 nibbles;
    uint pair;  // scale and minimum
};

Raw load_raw(uvec2 data, uint n, uint b) { return Raw(Quads(data).v[b], Words(data).v[4u * n + b]); }

float dot_raw(Raw raw, Input x) {
    const float scale = half_of(raw.pair & 0xFFFFu), minimum = half_of(raw.pair >> 16);
    return x.scale * (scale * float(dot_block(nibble_bytes(raw.nibbles), x)) + minimum * float(x.sum));
}
