// Cosine and sine of angles in turns: a whole turn is 2^32, so multiples of it fall away without rounding.
#ifndef WEIR_TURNS_GLSL
#define WEIR_TURNS_GLSL

const float kRadians = 1.46291808e-9;  // of 2^-32 turns

// (cos, sin) within 2e-7, by their series up to an eighth of a turn: the next terms are below 3e-9.
vec2 cos_sin_of(uint turn) {
    const uint quarter = (turn + 0x20000000u) >> 30;  // the nearest one
    precise float x = float(int(turn - (quarter << 30))) * kRadians;
    precise float s = x * x;
    precise float c = -2.75573192e-7;
    c = fma(c, s, 2.48015873e-5);
    c = fma(c, s, -1.38888889e-3);
    c = fma(c, s, 4.16666667e-2);
    c = fma(c, s, -0.5);
    c = fma(c, s, 1.0);
    precise float y = 2.75573192e-6;
    y = fma(y, s, -1.98412698e-4);
    y = fma(y, s, 8.33333333e-3);
    y = fma(y, s, -1.66666667e-1);
    y = fma(y * s, x, x);
    const vec2 near = (quarter & 1u) == 0u ? vec2(c, y) : vec2(-y, c);
    return (quarter & 2u) == 0u ? near : -near;
}

#endif
