// Functions whose built-in forms drivers may compute too coarsely: Vulkan allows exp an error that grows with its
// argument.
#ifndef WEIR_MATH_GLSL
#define WEIR_MATH_GLSL
#include "common/memory.glsl"

// e^x within 2 units in the last place. Below -87 it is 0, above 88 infinity; NaN stays NaN.
float exp_near(float x) {
    if (is_nan(x)) return x;
    if (x < -87.0) return 0.0;
    if (x > 88.0) return uintBitsToFloat(0x7F800000u);
    precise float n = floor(x * 1.44269504 + 0.5);
    // ln 2 in two parts: products of the first with n are exact.
    precise float r = fma(n, -0.693145752, x);
    r = fma(n, -1.42860677e-6, r);
    precise float p = 1.98412698e-4;
    p = fma(p, r, 1.38888889e-3);
    p = fma(p, r, 8.33333333e-3);
    p = fma(p, r, 4.16666667e-2);
    p = fma(p, r, 1.66666667e-1);
    p = fma(p, r, 0.5);
    p = fma(p, r, 1.0);
    p = fma(p, r, 1.0);
    return p * uintBitsToFloat(uint(int(n) + 127) << 23);
}

// 2 artanh(s) for s in 0 .. 1/3 and -1/5 .. 0.
float twice_artanh(float s) {
    const float z = s * s;
    precise float p = 0.0666666667;
    p = fma(p, z, 0.0769230769);
    p = fma(p, z, 0.0909090909);
    p = fma(p, z, 0.111111111);
    p = fma(p, z, 0.142857143);
    p = fma(p, z, 0.2);
    p = fma(p, z, 0.333333333);
    const float twice = 2.0 * s;
    return fma(twice * z, p, twice);
}

// The logarithm of a normal number above 0, within 2 units in the last place or of 1e-7.
float log_near(float x) {
    const uint bits = floatBitsToUint(x);
    int exponent = int(bits >> 23) - 127;
    float m = uintBitsToFloat((bits & 0x007FFFFFu) | 0x3F800000u);
    if (m > 1.41421356) {
        m *= 0.5;
        ++exponent;
    }
    const float n = float(exponent);
    precise float low = fma(n, 1.42860677e-6, twice_artanh((m - 1.0) / (m + 1.0)));
    return fma(n, 0.693145752, low);
}

float sigmoid(float x) { return 1.0 / (1.0 + exp_near(-x)); }

// tanh within 2e-7 of itself.
float tanh_near(float x) {
    const float a = abs(x);
    if (is_nan(x)) return x;
    if (a < 0.3) {  // the series; elsewhere the difference from 1 would cancel
        const float s = x * x;
        precise float p = -8.86323553e-3;
        p = fma(p, s, 2.18694885e-2);
        p = fma(p, s, -5.39682540e-2);
        p = fma(p, s, 1.33333333e-1);
        p = fma(p, s, -3.33333333e-1);
        return fma(x * s, p, x);
    }
    const float t = a > 10.0 ? 1.0 : 1.0 - 2.0 / (exp_near(2.0 * a) + 1.0);
    return x < 0.0 ? -t : t;
}

#endif
