// Gates and state of recurrent layers.
#ifndef WEIR_RECURRENT_GLSL
#define WEIR_RECURRENT_GLSL
#include "common/exact.glsl"

float silu(float x) { return x * sigmoid(x); }

// log(1 + exp(x))
float softplus(float x) {
    if (is_nan(x)) return x;
    return max(x, 0.0) + log1p_near(exp_near(-abs(x)));
}

// Which of the state's two copies a pass reads. The other is written.
bool second_is_current(uvec2 current) { return Words(current).v[0] != 0u; }

#endif
