// F32 on the GPU: rows as in the file.
#pragma once

#include "cuda/quant/float_format.cuh"
#include "cuda/quant/planes.h"

namespace weir::cuda {

template <>
struct PlaneLayout<WeightType::kF32> {
  static constexpr uint32_t kBytes[] = {1024};
};

#ifdef __CUDACC__

template <>
struct Format<WeightType::kF32> : FloatFormat<Format<WeightType::kF32>, 4> {
  __device__ static void decode(const Regs& r, uint32_t, float* out) {
    out[0] = __uint_as_float(r.data.x);
    out[1] = __uint_as_float(r.data.y);
    out[2] = __uint_as_float(r.data.z);
    out[3] = __uint_as_float(r.data.w);
  }
};

#endif  // __CUDACC__

}  // namespace weir::cuda
