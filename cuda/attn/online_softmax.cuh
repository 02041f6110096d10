// Online softmax over KV pages within a warp, for the decode kernels: logits of a page become weights, and earlier sums
// are rescaled.
#pragma once

#include "cuda/attn/kv_operands.cuh"
#include "cuda/common/mma_bf16.cuh"

namespace weir::cuda {

// Query heads of one MMA: rows of its A operand.
inline constexpr uint32_t kHeads = 8;

#ifdef __CUDACC__

inline constexpr float kLog2E = 1.44269504f, kLn2 = 0.69314718f;
inline constexpr float kUnseen = -INFINITY;

// State of the online softmax of head lane / 4: maximum (base 2) and sum.
struct Running {
  float m = kUnseen, l = 0.0f;
};

// Folds one page into the online softmax: logits become weights. When the maximum grows, the whole warp calls
// shrink_sums(factor), which must multiply the earlier sums of head lane / 4 with the factor. Returns log2 of the
// page's mass.
template <class Shrink>
__device__ float fold_page(float (&logit)[2][2], Running& run, const Shrink& shrink_sums) {
  float high = fmaxf(fmaxf(logit[0][0], logit[0][1]), fmaxf(logit[1][0], logit[1][1]));
  high = fmaxf(high, __shfl_xor_sync(kAllLanes, high, 1));
  high = fmaxf(high, __shfl_xor_sync(kAllLanes, high, 2));
  const float m = fmaxf(run.m, high);
  if (__any_sync(kAllLanes, m != run.m)) {
    const float shrink = m == kUnseen ? 1.0f : exp2f(run.m - m);
    run.l *= shrink;
    shrink_sums(shrink);
    run.m = m;
  }
  float sum = 0.0f;
#pragma unroll
  for (uint32_t t = 0; t < 2; ++t) {
#pragma unroll
    for (uint32_t e = 0; e < 2; ++e) {
      logit[t][e] = logit[t][e] == kUnseen ? 0.0f : exp2f(logit[t][e] - m);
      sum += logit[t][e];
    }
  }
  sum += __shfl_xor_sync(kAllLanes, sum, 1);
  sum += __shfl_xor_sync(kAllLanes, sum, 2);
  run.l += sum;
  return sum == 0.0f ? kUnseen : m + log2f(sum);  // a NaN stays NaN
}

#endif  // __CUDACC__

}  // namespace weir::cuda
