// The tensor-core MMA of the decode kernels (attention, page estimates): c [16, 8] += a [16, 16] * b [16, 8], bf16
// operands with f32 sums. With n = l / 4 and c = l % 4, lane l holds
// a0 = A[n][2c..], a1 = A[n + 8][2c..], a2 = A[n][2c + 8..], a3 = A[n + 8][2c + 8..] (pairs of columns),
// b0 = B[2c..][n], b1 = B[2c + 8..][n] (pairs of rows),
// c0, c1 = C[n][2c, 2c + 1], c2, c3 = C[n + 8][2c, 2c + 1].
#pragma once

#include "cuda/common/base.cuh"

namespace weir::cuda {

#ifdef __CUDACC__

__device__ inline void mma_bf16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
#if __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  // Turing's tensor cores have no bf16. Shuffles give the same sums, slowly.
  const uint32_t lane = threadIdx.x % kWarp, row = lane & ~3u, column = lane % 4 * 2;
#pragma unroll
  for (uint32_t pair = 0; pair < 4; ++pair) {
    const uint32_t low = __shfl_sync(kAllLanes, a[0], row + pair), low8 = __shfl_sync(kAllLanes, a[1], row + pair);
    const uint32_t high = __shfl_sync(kAllLanes, a[2], row + pair), high8 = __shfl_sync(kAllLanes, a[3], row + pair);
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
      const uint32_t x = __shfl_sync(kAllLanes, b0, (column + i) * 4 + pair),
                     y = __shfl_sync(kAllLanes, b1, (column + i) * 4 + pair);
      c[i] += bf16_low(low) * bf16_low(x) + bf16_high(low) * bf16_high(x) + bf16_low(high) * bf16_low(y) +
              bf16_high(high) * bf16_high(y);
      c[i + 2] += bf16_low(low8) * bf16_low(x) + bf16_high(low8) * bf16_high(x) + bf16_low(high8) * bf16_low(y) +
                  bf16_high(high8) * bf16_high(y);
    }
  }
#endif
}

// Rounds x and y to a pair of bf16 and returns in `rest` what the rounding took away, as another pair. Together they
// keep at least 16 significant bits of each.
__device__ inline uint32_t split_bf16(float x, float y, uint32_t& rest) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(x, y);
  const __nv_bfloat162 low = __floats2bfloat162_rn(x - __low2float(pair), y - __high2float(pair));
  rest = *reinterpret_cast<const uint32_t*>(&low);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

#endif  // __CUDACC__

}  // namespace weir::cuda
