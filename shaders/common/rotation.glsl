// The rotation of a head's channels in pairs.
#ifndef WEIR_ROTATION_GLSL
#define WEIR_ROTATION_GLSL

// Channels that turn together; those of pairs from rope_dim / 2 on pass.
uvec2 channels_of(uint pair, uint rope_dim, bool is_adjacent) {
    const uint half_dim = rope_dim / 2u;
    return pair >= half_dim || is_adjacent ? uvec2(2u * pair, 2u * pair + 1u) : uvec2(pair, pair + half_dim);
}

// x turned by an angle whose cosine and sine are given.
vec2 turned(vec2 x, vec2 turn) {
    precise float a = x.x * turn.x - x.y * turn.y, b = x.x * turn.y + x.y * turn.x;
    return vec2(a, b);
}

#endif
