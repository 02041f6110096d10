// Computes: rotation by a Hadamard matrix, see RotateHeadsArgs.
// Launch: a warp per row.
// Numerics: f32, the sums of lib/ops/hadamard.cpp.
// Traffic: the rows, once in each direction.
// Paper: as lib/ops/hadamard.h.
#include "device/kernels/rotate_heads.h"

#include "cuda/attn/head_size.cuh"
#include "cuda/pages/kv_rows.cuh"
#include "cuda/step/step.cuh"

namespace weir::cuda {
namespace {

constexpr uint32_t kBlock = 128, kRows = kBlock / kWarp;

template <uint32_t kDim>
__global__ void __launch_bounds__(kBlock) rotate_heads_kernel(const RotateHeadsArgs a) {
  constexpr uint32_t kEach = kDim / kWarp;
  start_next();
  wait_for_previous();
  const size_t row = size_t{blockIdx.x} * kRows + threadIdx.x / kWarp;
  if (row >= a.n_rows) return;
  float* const at = a.x + row * a.head_dim + threadIdx.x % kWarp;
  float x[kEach];
#pragma unroll
  for (uint32_t j = 0; j < kEach; ++j) x[j] = j * kWarp < a.head_dim ? at[j * kWarp] : 0.0f;
  rotate_row(x, a.head_dim);
#pragma unroll
  for (uint32_t j = 0; j < kEach; ++j) {
    if (j * kWarp < a.head_dim) at[j * kWarp] = x[j];
  }
}

}  // namespace

Status rotate_heads(OpContext& cx, const RotateHeadsArgs& a) {
  if (a.head_dim % kScaleElements != 0 || a.head_dim > kMaxHeadDim)
    return fail(WEIR_ERR_INTERNAL, "rotate_heads: heads of %u elements", a.head_dim);
  const uint32_t dim = padded_head_dim(a.head_dim);
  const auto kernel = dim == 64    ? rotate_heads_kernel<64>
                      : dim == 128 ? rotate_heads_kernel<128>
                                   : rotate_heads_kernel<kMaxHeadDim>;
  const auto blocks = static_cast<uint32_t>((a.n_rows + kRows - 1) / kRows);
  return launch("rotate_heads", kernel, blocks, kBlock, 0, stream_of(cx), a.overlap, a);
}

}  // namespace weir::cuda
