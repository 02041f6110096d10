// Sums over teams of neighbouring lanes of a warp.
#pragma once

#include "cuda/common/base.cuh"

namespace weir::cuda {

#ifdef __CUDACC__

// Sums each of kValues values over teams of kLanes lanes; both are powers of two, kValues <= kLanes. Each exchange
// halves the number of values that a lane keeps, and lane l of a team ends with the sum of value l % kValues. All lanes
// of the warp must take part.
template <uint32_t kLanes, uint32_t kValues>
__device__ inline float team_sum(float (&sum)[kValues], uint32_t lane) {
  uint32_t step = 1;
#pragma unroll
  for (uint32_t left = kValues; left > 1; left /= 2, step *= 2) {
    const bool upper = (lane & step) != 0;
    // The lane keeps the values whose index has the bit that the lane's number has.
#pragma unroll
    for (uint32_t i = 0; i < left / 2; ++i) {
      const float gives = upper ? sum[2 * i] : sum[2 * i + 1];
      const float keeps = upper ? sum[2 * i + 1] : sum[2 * i];
      sum[i] = keeps + __shfl_xor_sync(kAllLanes, gives, step);
    }
  }
#pragma unroll
  for (; step < kLanes; step *= 2) sum[0] += __shfl_xor_sync(kAllLanes, sum[0], step);
  return sum[0];
}

#endif  // __CUDACC__

}  // namespace weir::cuda
