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

// ln of a positive normal number within 2 units in the last place: the built-in one may have an absolute error.
float log_near(float x) {
    const int n = int((floatBitsToUint(x) - 0x3F3504F3u) >> 23) - (floatBitsToUint(x) < 0x3F3504F3u ? 512 : 0);
    const float m = uintBitsToFloat(floatBitsToUint(x) - (uint(n) << 23));  // from sqrt(1/2) to sqrt(2)
    const float s = (m - 1.0) / (m + 1.0), z = s * s;
    precise float p = 0.222222222;  // 2 atanh(s): terms beyond are below 1e-9
    p = fma(p, z, 0.285714286);
    p = fma(p, z, 0.4);
    p = fma(p, z, 0.666666667);
    p = fma(p * z, s, 2.0 * s);
    return fma(float(n), 0.693147181, p);
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
