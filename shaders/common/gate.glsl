// What a gate makes of its two inputs: lib/ops/gate_ref.h in f32.
#ifndef WEIR_GATE_GLSL
#define WEIR_GATE_GLSL
#include "common/math.glsl"
#include "shared.h"

const float kGelu1 = 1.59576912160573, kGelu3 = 0.0713548162726009;
const float kClampedMax = 7.0, kClampedSteepness = 1.702;

// The comparisons let a NaN pass.
float gated(uint activation, float g, float u) {
    if (activation == kGateRelu) return (g < 0.0 ? 0.0 : g) * u;
    float logit = g;
    if (activation == kGateGelu) logit = g * (kGelu1 + kGelu3 * g * g);
    if (activation == kGateClamped) {
        g = g > kClampedMax ? kClampedMax : g;
        u = (u > kClampedMax ? kClampedMax : u < -kClampedMax ? -kClampedMax : u) + 1.0;
        logit = kClampedSteepness * g;
    }
    return g * sigmoid(logit) * u;
}

#endif
