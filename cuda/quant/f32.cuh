// F32 on the GPU, in the planes of lib/quant/f32.h.
#pragma once

#include "cuda/quant/float_format.cuh"
#include "quant/weight_type.h"

namespace weir::cuda {

template <>
struct Format<WeightType::kF32> : FloatFormat<Format<WeightType::kF32>, 4> {
  __device__ static void decode(const Regs& r, uint32_t, float* out) {
    out[0] = __uint_as_float(r.data.x);
    out[1] = __uint_as_float(r.data.y);
    out[2] = __uint_as_float(r.data.z);
    out[3] = __uint_as_float(r.data.w);
  }
};

}  // namespace weir::cuda
