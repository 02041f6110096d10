// GEMM over the rows of each expert: every tile of rows reads the weights in their own format, and decodes them into
// shared memory right before their products. A prompt's batch gives an expert of many only a few dozen rows: to decode
// its matrices into memory first, and to read them from there, moved 7 times the bytes (f16 out and in beside 4.5 bits
// a weight) and took launches for a few experts at a time.
#include "cuda/matmul/experts_gemm.cuh"

#include <algorithm>

#include "cuda/matmul/gemm_tile.cuh"
#include "cuda/matmul/store_units.cuh"
#include "cuda/quant/formats.cuh"

namespace weir::cuda {
namespace {

constexpr uint32_t kThreads = 128, kN = 64;  // a thread decodes a unit of each slice of kN rows
constexpr uint32_t kUnitWeights = 32;
static_assert(kThreads * kUnitWeights == kN * kSlice);
constexpr uint32_t kStages = 3;  // of x, which is in L2
// Slices of weights that are on their way, in registers: with three blocks an SM has some 30 KiB of Q4_0 in flight,
// which is what memory needs to be busy, and more would cost a block's registers.
constexpr uint32_t kAhead = 4;
static_assert(kAhead % 2 == 0, "the stage of a slice's weights is that of its place in the loop");
constexpr uint32_t kWeightStage = kN * kRowBytes;
// Rows of an expert that a kernel's tile has. Each tile decodes the weights anew, and multiplies zeros where it has no
// rows; so there are three, each for the experts whose rows it fits best. By a count of instructions and bytes of Q4_0
// on an H200, to multiply 32 rows takes about as long as to read the weights; the sums of more than 128 would not fit
// into registers. How many rows an expert has is known to the device alone: every kernel is launched for all experts,
// and its blocks end at once at the others.
constexpr uint32_t kFewRows = 32, kSomeRows = 64, kManyRows = 128;
constexpr uint32_t kMaxUsual = 128;  // with more rows weights are decoded several times

constexpr size_t shared_bytes(uint32_t m) { return kStages * m * kRowBytes + 2 * kWeightStage; }
static_assert(shared_bytes(kManyRows) <= 64 * 1024, "compute capability 7.5 has no more");

// A thread's units of a block's rows of w: one of every slice.
template <class F>
struct Units {
  const typename F::Planes planes;
  size_t first;      // unit of the row
  uint32_t n, half;  // units of a row; which of a slice's two is this thread's
  uint32_t row;      // of the tile
  bool is_row;

  __device__ Units(const ExpertsGemmArgs& a, uint32_t first_row)
      : planes(F::planes(a.data, size_t{a.n_experts} * a.n_rows * (a.n_cols / kUnitWeights))),
        n(a.n_cols / kUnitWeights),
        half(threadIdx.x % 2),
        row(threadIdx.x / 2),
        is_row(first_row + row < a.n_rows) {
    first = (size_t{blockIdx.z} * a.n_rows + min(first_row + row, a.n_rows - 1)) * n;
  }
  __device__ size_t unit_of(uint32_t slice) const { return first + min(2 * slice + half, n - 1); }
  __device__ typename F::Regs load(uint32_t slice) const { return F::load(F::at(planes, unit_of(slice))); }

  // Writes the unit into the slice at `stage` of shared memory; zeros for what is beyond the matrix.
  __device__ void put(const typename F::Regs& r, uint32_t slice, unsigned char* stage) const {
    float v[kUnitWeights];
    F::decode(r, static_cast<uint32_t>(unit_of(slice) % 8), v);
    const bool exists = is_row && 2 * slice + half < n;
#pragma unroll
    for (uint32_t j = 0; j < kUnitWeights / 8; ++j) {
      const uint2 low = four_halves(v + 8 * j), high = four_halves(v + 8 * j + 4);
      *reinterpret_cast<uint4*>(stage + chunk_offset(row, half * 4 + j)) =
          exists ? make_uint4(low.x, low.y, high.x, high.y) : make_uint4(0, 0, 0, 0);
    }
  }
};

// Computes: see ExpertsGemmArgs, of experts with more than `above` rows, up to `most`.
// Launch: grid (tiles of kM rows of an expert, tiles of kN rows of w, experts).
// Numerics: f32 sums in ascending order of columns. Traffic: an expert's weights once for every kM of its rows; x from
// L2.
template <WeightType T, uint32_t kM, uint32_t kWarpsM, uint32_t kBlocks>
__global__ void __launch_bounds__(kThreads, kBlocks)
    experts_gemm_kernel(const ExpertsGemmArgs a, uint32_t above, uint32_t most) {
  using F = Format<T>;
  extern __shared__ __align__(128) unsigned char stages[];
  const uint32_t begin = a.begin[blockIdx.z], n_tok = a.begin[blockIdx.z + 1] - begin;
  const uint32_t first_tok = blockIdx.x * kM, first_row = blockIdx.y * kN;
  if (n_tok <= above || n_tok > most || first_tok >= n_tok) return;
  unsigned char* const weights = stages + kStages * kM * kRowBytes;
  const uint32_t x_at = shared_address(stages), w_at = shared_address(weights);
  const uint32_t n = (a.n_cols + kSlice - 1) / kSlice;
  const Units<F> units(a, first_row);
  const SliceCopy<kM, kThreads> copy_x(a.x + size_t{begin} * a.n_cols, first_tok, n_tok, a.n_cols);
  const auto copy_slice = [&](uint32_t slice) {
    if (slice < n) copy_x.copy(x_at + slice % kStages * kM * kRowBytes, slice * kSlice, a.n_cols);
    commit_copies();  // empty groups too: wait_copies counts groups
  };
  typename F::Regs ahead[kAhead];
#pragma unroll
  for (uint32_t i = 0; i < kAhead; ++i) ahead[i] = units.load(i);
#pragma unroll
  for (uint32_t i = 0; i < kStages - 1; ++i) copy_slice(i);
  units.put(ahead[0], 0, weights);
  ahead[0] = units.load(kAhead);
  WarpTile<kM, kN, kWarpsM, kThreads / kWarp / kWarpsM> tile;
#pragma unroll 1
  for (uint32_t at = 0; at < n; at += kAhead) {
#pragma unroll
    for (uint32_t i = 0; i < kAhead; ++i) {
      const uint32_t slice = at + i;  // below n: where the last one is has a break
      wait_copies<kStages - 2>();
      __syncthreads();  // the slice is visible to all warps, and what was read last is free
      tile.add(x_at + slice % kStages * kM * kRowBytes, w_at + i % 2 * kWeightStage,
               [&] { copy_slice(slice + kStages - 1); });
      if (slice + 1 >= n) break;
      units.put(ahead[(i + 1) % kAhead], slice + 1, weights + (i + 1) % 2 * kWeightStage);
      ahead[(i + 1) % kAhead] = units.load(slice + 1 + kAhead);
    }
  }
  wait_copies<0>();
  tile.each([&](uint32_t tok_of_tile, uint32_t row_of_tile, float y0, float y1) {
    const uint32_t tok = first_tok + tok_of_tile, row = first_row + row_of_tile;
    if (tok >= n_tok || row >= a.n_rows) return;
    const float* const bias = a.bias == nullptr ? nullptr : a.bias + size_t{blockIdx.z} * a.n_rows + row;
    *reinterpret_cast<float2*>(a.c + size_t{begin + tok} * a.n_rows + row) =
        scaled(a.scale_x[begin + tok], y0, y1, bias);
  });
}

template <WeightType T, uint32_t kM, uint32_t kWarpsM, uint32_t kBlocks>
Status launch_tile(OpContext& cx, const ExpertsGemmArgs& a, uint32_t above, uint32_t most) {
  if (a.n_tok <= above) return {};  // no expert has so many rows
  const auto kernel = experts_gemm_kernel<T, kM, kWarpsM, kBlocks>;
  WEIR_CUDA_TRY(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes(kM))),
      "experts_gemm: shared memory");
  const dim3 grid((std::min(a.n_tok, most) + kM - 1) / kM, (a.n_rows + kN - 1) / kN, a.n_experts);
  return launch("experts_gemm", kernel, grid, dim3(kThreads), shared_bytes(kM), stream_of(cx), false, a, above, most);
}

template <WeightType T>
Status launch_type(OpContext& cx, const ExpertsGemmArgs& a) {
  if constexpr (Format<T>::kUnit == kUnitWeights) {
    WEIR_TRY((launch_tile<T, kFewRows, 1, 4>(cx, a, 0, kFewRows)));
    WEIR_TRY((launch_tile<T, kSomeRows, 2, 3>(cx, a, kFewRows, kSomeRows)));
    return launch_tile<T, kManyRows, 2, 2>(cx, a, kSomeRows, UINT32_MAX);
  }
  return fail(WEIR_ERR_INTERNAL, "experts_gemm: weight type %d", static_cast<int>(T));
}

}  // namespace

bool has_experts_gemm(WeightType type, uint32_t usual_tok) {
  if (usual_tok > kMaxUsual) return false;
  switch (type) {
#define WEIR_QUANT(Name, text, gguf_id, block_weights, block_bytes) \
  case WeightType::k##Name:                                         \
    return Format<WeightType::k##Name>::kUnit == kUnitWeights;
#include "quant/quants.inc"
#undef WEIR_QUANT
  }
  return false;
}

Status experts_gemm(OpContext& cx, WeightType type, const ExpertsGemmArgs& a) {
  switch (type) {
#define WEIR_QUANT(Name, text, gguf_id, block_weights, block_bytes) \
  case WeightType::k##Name:                                         \
    return launch_type<WeightType::k##Name>(cx, a);
#include "quant/quants.inc"
#undef WEIR_QUANT
  }
  return fail(WEIR_ERR_INTERNAL, "experts_gemm: weight type %d", static_cast<int>(type));
}

}  // namespace weir::cuda
