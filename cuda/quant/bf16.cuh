// BF16 on the GPU, in the planes of lib/quant/bf16.h.
#pragma once

#include "cuda/quant/float_format.cuh"
#include "quant/weight_type.h"

namespace weir::cuda {

template <>
struct Format<WeightType::kBF16> : FloatFormat<Format<WeightType::kBF16>, 8> {
  __device__ static void decode(const Regs& r, uint32_t, float* out) {
    const uint32_t words[4] = {r.data.x, r.data.y, r.data.z, r.data.w};
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      out[2 * i] = bf16_low(words[i]);
      out[2 * i + 1] = bf16_high(words[i]);
    }
  }
};

}  // namespace weir::cuda
