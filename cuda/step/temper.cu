// Queries that grow with their positions.
#include "ops/temper.h"

#include "cuda/common/base.cuh"
#include "cuda/ops.h"

namespace weir::cuda {
namespace {

constexpr uint32_t kThreads = 256;

// Computes: q *= 1 + beta * log(1 + pos / n_tokens), the quotient rounded down.
// Launch: one block per token.
// Numerics: f32; the logarithm within a few units in the last place.
__global__ void __launch_bounds__(kThreads) temper_kernel(const TemperArgs a) {
  const uint32_t first = a.pos_at != nullptr ? *a.pos_at : a.pos;
  const auto steps = static_cast<float>((first + blockIdx.x) / a.temperature.n_tokens);
  const float factor = fmaf(a.temperature.beta, log1pf(steps), 1.0f);
  float* q = a.q + size_t{blockIdx.x} * a.width;
  for (uint32_t i = threadIdx.x; i < a.width; i += kThreads) q[i] *= factor;
}

}  // namespace

Status temper(OpContext& cx, const TemperArgs& a) {
  if (a.n_tok == 0) return {};
  return launch("temper", temper_kernel, dim3(a.n_tok), dim3(kThreads), 0, stream_of(cx), false, a);
}

}  // namespace weir::cuda
