// What the GEMMs on tensor cores have in common: slices of their operands in shared memory, and a tile of c that the
// warps of a block compute from them, each a part. gemm.cu copies both operands as they are; experts_gemm.cu decodes
// one of them.
#pragma once

#include "cuda/common/tensor_core.cuh"

namespace weir::cuda {

// Columns of a K slice: one row of it is 128 bytes, once around the banks of shared memory.
inline constexpr uint32_t kSlice = 64;
inline constexpr uint32_t kChunks = kSlice / 8;  // 16-byte chunks in a row of a slice
inline constexpr uint32_t kRowBytes = kSlice * sizeof(__half);

#ifdef __CUDACC__

// Byte offset of a chunk in a slice. A fragment load reads the same chunk of eight rows at once; the XOR swizzle places
// them in different banks.
__device__ inline uint32_t chunk_offset(uint32_t row, uint32_t chunk) {
  return row * kRowBytes + ((chunk ^ (row & 7)) << 4);
}

// The share of one thread in copying slices of kRows rows: one chunk of every kStep-th row.
template <uint32_t kRows, uint32_t kThreads>
struct SliceCopy {
  static constexpr uint32_t kStep = kThreads / kChunks;
  static constexpr uint32_t kPasses = kRows / kStep;
  static_assert(kRows % kStep == 0 && kStep % 8 == 0);

  const __half* from;
  size_t step;      // elements between the rows of two passes
  uint32_t to;      // offset in the stage
  uint32_t column;  // of the chunk in the slice
  int32_t n_valid;  // rows that exist, counted from this thread's first

  __device__ SliceCopy(const __half* matrix, uint32_t first_row, uint32_t n_rows, uint32_t n_cols) {
    const uint32_t row = threadIdx.x / kChunks, chunk = threadIdx.x % kChunks;
    column = chunk * 8;
    from = matrix + size_t{first_row + row} * n_cols + column;
    step = size_t{kStep} * n_cols;
    to = chunk_offset(row, chunk);
    n_valid = static_cast<int32_t>(n_rows) - static_cast<int32_t>(first_row + row);
  }

  __device__ void copy(uint32_t stage, uint32_t first_col, uint32_t n_cols) const {
    const int32_t n = first_col + column < n_cols ? n_valid : 0;
#pragma unroll
    for (uint32_t i = 0; i < kPasses; ++i) {
      copy_16_async(stage + to + i * kStep * kRowBytes, from + i * step + first_col,
                    static_cast<int32_t>(i * kStep) < n);
    }
  }
};

// scale * (y0, y1) (+ bias), rounded once, of two neighbouring rows. What the compiler fuses depends on the code around
// it; explicitly, every kernel that computes a whole product gives the same bits.
__device__ inline float2 scaled(float scale, float y0, float y1, const float* bias) {
  if (bias == nullptr) return make_float2(__fmul_rn(scale, y0), __fmul_rn(scale, y1));
  return make_float2(fmaf(scale, y0, bias[0]), fmaf(scale, y1, bias[1]));
}

// A warp's part of a tile of kM tokens and kN rows of w.
template <uint32_t kM, uint32_t kN, uint32_t kWarpsM, uint32_t kWarpsN>
struct WarpTile {
  static constexpr uint32_t kTilesM = kM / kWarpsM / 16;  // 16 tokens each
  static constexpr uint32_t kTilesN = kN / kWarpsN / 16;  // 16 rows of w each
  static_assert(kTilesM > 0 && kTilesN > 0);

  uint32_t lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  uint32_t first_tok = warp % kWarpsM * (kM / kWarpsM), first_row = warp / kWarpsM * (kN / kWarpsN);
  float sum[kTilesM][2 * kTilesN][4] = {};

  // Fragments k of the slices at x_stage and w_stage. The rows of different fragments are multiples of 8 apart, so the
  // lane's XOR swizzle is the same for all; chunk 2 * k + i differs from chunk i only in address bits that it leaves
  // alone.
  __device__ __forceinline__ void load(uint32_t x_stage, uint32_t w_stage, uint32_t k, uint32_t (&x)[kTilesM][4],
                                       uint32_t (&w)[kTilesN][4]) const {
    const uint32_t x_at = (x_stage + chunk_offset(first_tok + lane % 16, lane / 16)) ^ (k << 5);
    const uint32_t w_at = (w_stage + chunk_offset(first_row + lane % 8 + lane / 16 * 8, lane / 8 % 2)) ^ (k << 5);
#pragma unroll
    for (uint32_t i = 0; i < kTilesM; ++i) load_matrices(x[i], x_at + i * 16 * kRowBytes);
#pragma unroll
    for (uint32_t j = 0; j < kTilesN; ++j) load_matrices(w[j], w_at + j * 16 * kRowBytes);
  }

  // Adds the products of a slice; meanwhile() is called when the first fragments are on their way.
  template <class Meanwhile>
  __device__ __forceinline__ void add(uint32_t x_stage, uint32_t w_stage, const Meanwhile& meanwhile) {
    uint32_t x[2][kTilesM][4], w[2][kTilesN][4];
    load(x_stage, w_stage, 0, x[0], w[0]);
    meanwhile();
#pragma unroll
    for (uint32_t k = 0; k < kSlice / 16; ++k) {
      if (k + 1 < kSlice / 16) load(x_stage, w_stage, k + 1, x[(k + 1) % 2], w[(k + 1) % 2]);
#pragma unroll
      for (uint32_t i = 0; i < kTilesM; ++i) {
#pragma unroll
        for (uint32_t j = 0; j < 2 * kTilesN; ++j)
          multiply_f16(sum[i][j], x[k % 2][i], w[k % 2][j / 2][j % 2 * 2], w[k % 2][j / 2][j % 2 * 2 + 1]);
      }
    }
  }

  // Calls put(token, row, y0, y1) for the sums of neighbouring rows of the tile, which begin there.
  template <class Put>
  __device__ __forceinline__ void each(const Put& put) const {
#pragma unroll
    for (uint32_t i = 0; i < 2 * kTilesM; ++i) {  // 8 tokens each
#pragma unroll
      for (uint32_t j = 0; j < 2 * kTilesN; ++j)
        put(first_tok + i * 8 + lane / 4, first_row + j * 8 + lane % 4 * 2, sum[i / 2][j][i % 2 * 2],
            sum[i / 2][j][i % 2 * 2 + 1]);
    }
  }
};

#endif  // __CUDACC__

}  // namespace weir::cuda
