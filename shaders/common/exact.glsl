// Divisions and sums that do not depend on the driver: Vulkan allows a quotient an error of 2.5 units in the last
// place, and fma need not round once. Products are split into halves instead.
#ifndef WEIR_EXACT_GLSL
#define WEIR_EXACT_GLSL
#include "common/math.glsl"

// a + b and what rounding took from it.
vec2 two_sum(float a, float b) {
    precise float sum = a + b;
    precise float b_in = sum - a;
    precise float rest = (a - (sum - b_in)) + (b - b_in);
    return vec2(sum, rest);
}

// The upper 12 bits of a number. Above 2^115 it is not finite.
float upper_half(float a) {
    precise float scaled = 4097.0 * a;
    precise float high = scaled - (scaled - a);
    return high;
}

// a * b and what rounding took from it.
vec2 two_product(float a, float b) {
    precise float product = a * b;
    precise float a_high = upper_half(a), b_high = upper_half(b);
    precise float a_low = a - a_high, b_low = b - b_high;
    precise float rest = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low;
    return vec2(product, rest);
}

// a / b, rounded to nearest where the numbers are neither huge nor tiny.
float quotient(float a, float b) {
    precise float near = a / b;
    const vec2 product = two_product(near, b);
    precise float left = (a - product.x) - product.y;
    precise float better = near + left / b;
    return is_finite(better) ? better : near;
}

// Sums of two floats each, of which the second is what the first has no room for.
vec2 add_pairs(vec2 a, vec2 b) {
    const vec2 sum = two_sum(a.x, b.x);
    precise float rest = sum.y + (a.y + b.y);
    precise float high = sum.x + rest;
    precise float low = rest - (high - sum.x);
    return vec2(high, low);
}

// log(1 + x) for x in 0 .. 1.
float log1p_near(float x) { return twice_artanh(x / (2.0 + x)); }

#endif
