// F16 on the GPU, in the planes of lib/quant/f16.h.
#pragma once

#include "cuda/quant/float_format.cuh"
#include "quant/weight_type.h"

namespace weir::cuda {

template <>
struct Format<WeightType::kF16> : FloatFormat<Format<WeightType::kF16>, 8> {
  __device__ static void decode(const Regs& r, uint32_t, float* out) {
    const uint32_t words[4] = {r.data.x, r.data.y, r.data.z, r.data.w};
#pragma unroll
    for (uint32_t i = 0; i < 8; ++i) out[i] = half_bits(words[i / 2] >> (i % 2 * 16) & 0xFFFFu);
  }
};

}  // namespace weir::cuda
