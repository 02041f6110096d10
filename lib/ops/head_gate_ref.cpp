// Queries and gates of attention heads, defined.
#include <cmath>

#include "ops/head_gate.h"

namespace weir::ref {

Status head_gate(OpContext&, const HeadGateArgs& a) {
  const size_t n = a.head_dim;
  for (size_t head = 0; head < size_t{a.n_tok} * a.n_heads; ++head) {
    const float* q = a.qg + head * 2 * n;
    float* y = a.y + head * n;
    for (size_t i = 0; i < n; ++i) y[i] = a.apply ? y[i] / (1.0f + std::exp(-q[n + i])) : q[i];
  }
  return {};
}

}  // namespace weir::ref
