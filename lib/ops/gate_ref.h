// What a gate makes of its two inputs, for the references of glu_matmul and experts.
#pragma once

#include <cmath>
#include <numbers>

#include "ops/gate.h"
#include "ops/types.h"

namespace weir::ref {

// Every other activation than ReLU is g * sigmoid of something; GELU written with tanh would lose the last digits for
// large negative inputs. The comparisons let a NaN pass.
inline double gated(Gate kind, double g, double u) {
  if (kind == Gate::kRelu) return (g < 0.0 ? 0.0 : g) * u;
  double logit = g;
  if (kind == Gate::kGelu) logit = 2.0 * std::sqrt(2.0 / std::numbers::pi) * (g + 0.044715 * g * g * g);
  if (kind == Gate::kClamped) {
    g = g > kClampedMax ? kClampedMax : g;
    u = (u > kClampedMax ? kClampedMax : u < -kClampedMax ? -kClampedMax : u) + 1.0;
    logit = 1.702 * g;
  }
  return g / (1.0 + std::exp(-logit)) * u;
}

}  // namespace weir::ref
