// The tensor-core MMA of whole numbers: c [16, 8] = a [16, 32] * b [32, 8], or that added to c; operands of 8 bits with
// signs, sums of 32 bits. With n = l / 4 and c = l % 4, lane l holds, four columns or rows in each,
// a0 = A[n][4c..], a1 = A[n + 8][4c..], a2 = A[n][4c + 16..], a3 = A[n + 8][4c + 16..],
// b0 = B[4c..][n], b1 = B[4c + 16..][n], and c0, c1 = C[n][2c, 2c + 1], c2, c3 = C[n + 8][2c, 2c + 1].
#pragma once

#include "cuda/common/base.cuh"

namespace weir::cuda {

#if defined(__CUDACC__) && __CUDA_ARCH__ >= 800

// kBegins: the sums are zeros before.
template <bool kBegins>
__device__ inline void mma_int8(int (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (kBegins) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, "
        "%10};"
        : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(0));
  } else {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
        "%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

#endif

}  // namespace weir::cuda
