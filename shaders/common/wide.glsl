// Integers of 64 bits as two words, the low one first: drivers need not have them.
#ifndef WEIR_WIDE_GLSL
#define WEIR_WIDE_GLSL

uvec2 wide(uint x) { return uvec2(x, 0u); }

uvec2 wide_sum(uvec2 a, uvec2 b) {
    uint carry;
    const uint low = uaddCarry(a.x, b.x, carry);
    return uvec2(low, a.y + b.y + carry);
}

uvec2 wide_product(uvec2 a, uvec2 b) {
    uint high, low;
    umulExtended(a.x, b.x, high, low);
    return uvec2(low, high + a.x * b.y + a.y * b.x);
}

// x ^ (x >> n), n in 1..31.
uvec2 wide_xor_shifted(uvec2 x, uint n) { return x ^ uvec2(x.x >> n | x.y << (32u - n), x.y >> n); }

bool wide_less(uvec2 a, uvec2 b) { return a.y < b.y || (a.y == b.y && a.x < b.x); }

#endif
