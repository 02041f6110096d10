// A number of 64 bits for each page that depends on nothing but the seed, the stream and positions.
#ifndef WEIR_RANDOM_ORDER_GLSL
#define WEIR_RANDOM_ORDER_GLSL
#include "common/wide.glsl"

// random_order of lib/ops/step_rules.h.
uvec2 random_order(uint seed, uint stream, uint pos, uint page_pos) {
    const uint parts[3] = uint[3](stream, pos, page_pos);
    uvec2 z = wide(seed);
    for (uint i = 0u; i < 3u; ++i) {
        const uvec2 next = wide_sum(wide(parts[i]), wide(1u));
        z = wide_sum(z, wide_product(next, uvec2(0x7F4A7C15u, 0x9E3779B9u)));
        z = wide_product(wide_xor_shifted(z, 30u), uvec2(0x1CE4E5B9u, 0xBF58476Du));
        z = wide_product(wide_xor_shifted(z, 27u), uvec2(0x133111EBu, 0x94D049BBu));
        z = wide_xor_shifted(z, 31u);
    }
    return z;
}

#endif
