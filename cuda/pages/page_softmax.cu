// Computes: softmax(scale * score) over each head's table rows in use, in place.
// Launch: one block per query head.
// Numerics: f32, sums in a fixed order. A NaN score makes all weights of its head NaN, as on the CPU
// (lib/policy/raas.cpp).
#include "cuda/common/base.cuh"
#include "cuda/ops.h"
#include "device/kernels/page_softmax.h"

namespace weir::cuda {
namespace {

constexpr uint32_t kBlock = 256;

// Joins one value per warp to one of the block and returns it to all threads.
template <class Join>
__device__ inline float join_warps(float x, float* shared, const Join& join) {
  __syncthreads();
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = x;
  __syncthreads();
  x = shared[0];
  for (uint32_t i = 1; i < kBlock / kWarp; ++i) x = join(x, shared[i]);
  return x;
}

__global__ void __launch_bounds__(kBlock) page_softmax_kernel(const PageSoftmaxArgs a) {
  __shared__ float shared[kBlock / kWarp];
  start_next();
  wait_for_previous();
  float* w = a.score + size_t{blockIdx.x} * a.capacity;
  const uint32_t n = a.n_pages[blockIdx.x / (a.n_heads / a.n_kv_heads)];
  float high = -INFINITY;
  for (uint32_t p = threadIdx.x; p < n; p += kBlock) high = fmaxf(high, __fmul_rn(a.scale, w[p]));
  high = join_warps(warp_max(high), shared, [](float x, float y) { return fmaxf(x, y); });
  float sum = 0.0f;
  for (uint32_t p = threadIdx.x; p < n; p += kBlock) {
    const float weight = expf(__fmul_rn(a.scale, w[p]) - high);
    w[p] = weight;
    sum += weight;
  }
  sum = join_warps(warp_sum(sum), shared, [](float x, float y) { return x + y; });
  for (uint32_t p = threadIdx.x; p < n; p += kBlock) w[p] /= sum;
}

}  // namespace

Status page_softmax(OpContext& cx, const PageSoftmaxArgs& a) {
  return launch("page_softmax", page_softmax_kernel, a.n_heads, kBlock, 0, stream_of(cx), true, a);
}

}  // namespace weir::cuda
