// What all CUDA sources share: checked calls, warp reductions, bf16 conversions, programmatic dependent launch.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "core/status.h"
#include "cuda/common/device.cuh"
#include "ops/gate.h"
#include "ops/types.h"

namespace weir::cuda {

inline constexpr uint32_t kWarp = 32;
inline constexpr uint32_t kAllLanes = 0xFFFFFFFFu;

inline cudaStream_t stream_of(const OpContext& cx) { return static_cast<cudaStream_t>(cx.stream); }

// Turns a failed CUDA call into a status that names the purpose of the call. Errors that destroy the CUDA context give
// WEIR_ERR_DEVICE_LOST.
Status cuda_status(cudaError_t error, const char* what);

#define WEIR_CUDA_TRY(call, what)                                                                  \
  do {                                                                                             \
    const cudaError_t weir_cuda_error_ = (call);                                                   \
    if (weir_cuda_error_ != cudaSuccess) return ::weir::cuda::cuda_status(weir_cuda_error_, what); \
  } while (0)

// Launches `kernel`. With `overlap` (programmatic dependent launch, sm_90 and later) it may start before the previous
// kernel of the stream has ended. It must then call wait_for_previous() before it touches memory that previous kernels
// write or read.
template <class... Params, class... Args>
Status launch(const char* name, void (*kernel)(Params...), dim3 grid, dim3 block, size_t shared_bytes,
              cudaStream_t stream, bool overlap, Args&&... args) {
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = overlap && device().arch >= 90 ? 1 : 0;
  WEIR_CUDA_TRY(cudaLaunchKernelEx(&config, kernel, static_cast<Params>(std::forward<Args>(args))...), name);
  return {};
}

#ifdef __CUDACC__

// Waits until everything that earlier kernels of the stream wrote is visible. Does nothing in a kernel that was
// launched without overlap.
__device__ inline void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the next kernel of the stream start once every block has called this or has ended.
__device__ inline void start_next() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

__device__ inline float warp_sum(float x) {
#pragma unroll
  for (uint32_t i = kWarp / 2; i > 0; i /= 2) x += __shfl_xor_sync(kAllLanes, x, i);
  return x;
}

__device__ inline float warp_max(float x) {
#pragma unroll
  for (uint32_t i = kWarp / 2; i > 0; i /= 2) x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, i));
  return x;
}

__device__ inline uint32_t warp_sum(uint32_t x) {
#pragma unroll
  for (uint32_t i = kWarp / 2; i > 0; i /= 2) x += __shfl_xor_sync(kAllLanes, x, i);
  return x;
}

__device__ inline float bf16_to_float(uint16_t h) { return __uint_as_float(static_cast<uint32_t>(h) << 16); }
__device__ inline float bf16_low(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ inline float bf16_high(uint32_t pair) { return __uint_as_float(pair & 0xFFFF0000u); }
__device__ inline uint16_t float_to_bf16(float x) { return __bfloat16_as_ushort(__float2bfloat16_rn(x)); }

// What the sigmoid of is multiplied with g; not of ReLU.
__device__ inline float gate_logit(Gate gate, float g) {
  return gate == Gate::kGelu ? g * fmaf(g * g, kGelu3, kGelu1) : gate == Gate::kClamped ? kClampedSteepness * g : g;
}

// What a gate does to its inputs before that. By comparisons, which let a NaN pass.
__device__ inline void clamp_inputs(Gate gate, float& g, float& u) {
  if (gate != Gate::kClamped) return;
  g = g > kClampedMax ? kClampedMax : g;
  u = (u > kClampedMax ? kClampedMax : u < -kClampedMax ? -kClampedMax : u) + 1.0f;
}

// What a gate makes of its inputs.
__device__ inline float gated(Gate gate, float g, float u) {
  if (gate == Gate::kRelu) return (g < 0.0f ? 0.0f : g) * u;
  clamp_inputs(gate, g, u);
  return g / (1.0f + __expf(-gate_logit(gate, g))) * u;
}

#endif  // __CUDACC__

}  // namespace weir::cuda
