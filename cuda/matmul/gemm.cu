// GEMM in f16 on tensor cores with f32 sums: a block computes a tile of c, its warps parts of the tile. K slices of x
// and w pass through a multi-stage ring buffer in shared memory. Sums are taken in ascending order of n_cols, and
// split-K parts are merged in ascending order, so that a shape always gives the same result on a device.
#include "cuda/matmul/gemm.cuh"

#include <algorithm>

#include "cuda/matmul/gemm_tile.cuh"

namespace weir::cuda {
namespace {

// Which share of the sums a block takes, with split-K.
struct SplitK {
  uint32_t part, n_parts;
};

// Computes: c (+)= scale_x * (x . w^T) (+ bias) of one tile; with split-K partial[part] = x . w^T over the columns of
// the part.
// Shapes: see GemmArgs.
// Launch: grid (tiles of tokens, tiles of rows, parts), so that blocks that run at the same time share slices of w.
// Numerics: f32 sums in ascending order of columns.
// Traffic: x is read n_rows / kN times, w n_tok / kM times, mostly from L2.
template <uint32_t kM, uint32_t kN, uint32_t kWarpsM, uint32_t kWarpsN, uint32_t kStages>
__device__ __forceinline__ void multiply_tile(const GemmArgs& a, uint32_t first_tok, uint32_t first_row, SplitK split) {
  constexpr uint32_t kThreads = kWarpsM * kWarpsN * kWarp;
  constexpr uint32_t kStageBytes = (kM + kN) * kRowBytes;
  extern __shared__ __align__(128) unsigned char stages[];
  const uint32_t base = shared_address(stages);

  const uint32_t n_slices = (a.n_cols + kSlice - 1) / kSlice;
  const uint32_t part_slices = (n_slices + split.n_parts - 1) / split.n_parts;
  const uint32_t begin = min(split.part * part_slices, n_slices);
  const uint32_t n = min(part_slices, n_slices - begin);

  const SliceCopy<kM, kThreads> copy_x(a.x, first_tok, a.n_tok, a.n_cols);
  const SliceCopy<kN, kThreads> copy_w(a.w, first_row, a.n_rows, a.n_cols);
  const auto copy_slice = [&](uint32_t slice) {
    if (slice < n) {
      const uint32_t stage = base + slice % kStages * kStageBytes;
      copy_x.copy(stage, (begin + slice) * kSlice, a.n_cols);
      copy_w.copy(stage + kM * kRowBytes, (begin + slice) * kSlice, a.n_cols);
    }
    commit_copies();  // empty groups too: wait_copies counts groups
  };

  WarpTile<kM, kN, kWarpsM, kWarpsN> tile;
#pragma unroll
  for (uint32_t i = 0; i < kStages - 1; ++i) copy_slice(i);
  for (uint32_t slice = 0; slice < n; ++slice) {
    wait_copies<kStages - 2>();
    __syncthreads();  // the slice is visible to all warps, and the stage that was read last is free
    const uint32_t stage = base + slice % kStages * kStageBytes;
    tile.add(stage, stage + kM * kRowBytes, [&] { copy_slice(slice + kStages - 1); });
  }
  wait_copies<0>();

  const bool is_part = split.n_parts > 1;
  float* const c = is_part ? a.partial + size_t{split.part} * a.n_tok * a.n_rows : a.c;
  const size_t ldc = is_part ? a.n_rows : a.ldc;
  tile.each([&](uint32_t tok_of_tile, uint32_t row_of_tile, float y0, float y1) {
    const uint32_t tok = first_tok + tok_of_tile, row = first_row + row_of_tile;
    if (tok >= a.n_tok || row >= a.n_rows) return;
    const float scale = is_part || a.scale_x == nullptr ? 1.0f : a.scale_x[tok];
    const bool has_bias = !is_part && a.bias != nullptr;
    float2 y = scaled(scale, y0, y1, has_bias ? a.bias + row : nullptr);
    float2* const to = reinterpret_cast<float2*>(c + tok * ldc + row);
    if (!is_part && a.accumulate) {
      y = has_bias ? make_float2(__fadd_rn(to->x, y.x), __fadd_rn(to->y, y.y))
                   : make_float2(fmaf(scale, y0, to->x), fmaf(scale, y1, to->y));
    }
    *to = y;
  });
}

template <uint32_t kM, uint32_t kN, uint32_t kWarpsM, uint32_t kWarpsN, uint32_t kStages, uint32_t kBlocks>
__global__ void __launch_bounds__(kWarpsM* kWarpsN* kWarp, kBlocks) gemm_f16_kernel(const GemmArgs a) {
  multiply_tile<kM, kN, kWarpsM, kWarpsN, kStages>(a, blockIdx.x * kM, blockIdx.y * kN, {blockIdx.z, gridDim.z});
}

// The tile of one group, blockIdx.z; blocks beyond the group's rows have nothing to do.
template <uint32_t kM, uint32_t kN, uint32_t kWarpsM, uint32_t kWarpsN, uint32_t kStages, uint32_t kBlocks>
__global__ void __launch_bounds__(kWarpsM* kWarpsN* kWarp, kBlocks) gemm_f16_groups_kernel(const GemmGroups g) {
  const uint32_t group = g.first + blockIdx.z, begin = g.begin[group], n = g.begin[group + 1] - begin;
  if (blockIdx.x * kM >= n) return;
  GemmArgs a = g.gemm;
  a.n_tok = n;
  a.x += size_t{begin} * a.n_cols;
  a.c += size_t{begin} * a.ldc;
  if (a.scale_x != nullptr) a.scale_x += begin;
  a.w += size_t{blockIdx.z} * a.n_rows * a.n_cols;
  if (a.bias != nullptr) a.bias += size_t{group} * g.bias_stride;
  multiply_tile<kM, kN, kWarpsM, kWarpsN, kStages>(a, blockIdx.x * kM, blockIdx.y * kN, {0, 1});
}

constexpr uint32_t kMergeThreads = 256;

// Computes: c (+)= scale_x * (sum of the split-K parts in ascending order) (+ bias). Here every step is rounded by
// itself.
// Launch: one thread per pair of elements.
__global__ void __launch_bounds__(kMergeThreads) merge_parts_kernel(GemmArgs a, uint32_t n_parts) {
  const size_t i = size_t{blockIdx.x} * kMergeThreads + threadIdx.x;
  const uint32_t pairs = a.n_rows / 2;
  if (i >= size_t{a.n_tok} * pairs) return;
  const uint32_t tok = static_cast<uint32_t>(i / pairs), row = static_cast<uint32_t>(i % pairs) * 2;
  const float2* const parts = reinterpret_cast<const float2*>(a.partial) + i;
  float2 y = parts[0];
  for (uint32_t p = 1; p < n_parts; ++p) {
    const float2 part = parts[p * size_t{a.n_tok} * pairs];
    y = make_float2(y.x + part.x, y.y + part.y);
  }
  const float scale = a.scale_x == nullptr ? 1.0f : a.scale_x[tok];
  y = scaled(scale, y.x, y.y, nullptr);
  if (a.bias != nullptr) y = make_float2(__fadd_rn(y.x, a.bias[row]), __fadd_rn(y.y, a.bias[row + 1]));
  float2* const to = reinterpret_cast<float2*>(a.c + size_t{tok} * a.ldc + row);
  if (a.accumulate) y = make_float2(to->x + y.x, to->y + y.y);
  *to = y;
}

struct Tile {
  void (*kernel)(GemmArgs);
  void (*groups_kernel)(GemmGroups);
  uint32_t m, n, threads, stages;
  float rate;       // estimated throughput of an SM with `enough` blocks, relative to the first tile
  uint32_t enough;  // blocks
  size_t shared_bytes() const { return size_t{stages} * (m + n) * kRowBytes; }
};

template <uint32_t kM, uint32_t kN, uint32_t kWarpsM, uint32_t kWarpsN, uint32_t kStages, uint32_t kBlocks>
constexpr Tile make_tile(float rate) {
  return {gemm_f16_kernel<kM, kN, kWarpsM, kWarpsN, kStages, kBlocks>,
          gemm_f16_groups_kernel<kM, kN, kWarpsM, kWarpsN, kStages, kBlocks>,
          kM,
          kN,
          kWarpsM * kWarpsN * kWarp,
          kStages,
          rate,
          kBlocks};
}

// Where there are enough tokens a warp computes 64 x 64: reading its fragments from shared memory then takes about half
// the time of the MMAs that use them. The smaller tiles are for matrices that would leave SMs idle. The last tile is
// for few tokens, where only the speed of reading w counts: its six stages keep 40 KiB of w in flight in each block.
constexpr Tile kTiles[kGemmTiles] = {
    make_tile<128, 128, 2, 2, 3, 2>(1.0f), make_tile<128, 256, 2, 4, 3, 1>(1.0f), make_tile<128, 64, 2, 2, 4, 2>(0.85f),
    make_tile<64, 64, 2, 2, 4, 3>(0.7f),   make_tile<16, 64, 1, 4, 6, 3>(0.3f),
};

// Estimated factor on the throughput of an SM that has too few blocks to hide latencies.
constexpr float kAloneRate = 0.8f;
// Minimum number of slices in a split-K part: shorter parts would spend their time filling the pipeline.
constexpr uint32_t kPartSlices = 8;

struct DeviceLimits {
  int n_processors = 0;
  int shared_bytes = 0;  // of a block
};

Status device_limits(DeviceLimits& limits) {
  int device = 0;
  WEIR_CUDA_TRY(cudaGetDevice(&device), "gemm: device");
  WEIR_CUDA_TRY(cudaDeviceGetAttribute(&limits.n_processors, cudaDevAttrMultiProcessorCount, device),
                "gemm: multiprocessors");
  WEIR_CUDA_TRY(cudaDeviceGetAttribute(&limits.shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
                "gemm: shared memory");
  return {};
}

uint32_t divide_up(uint32_t n, uint32_t by) { return (n + by - 1) / by; }
uint32_t n_blocks(const Tile& tile, const GemmArgs& a) {
  return divide_up(a.n_tok, tile.m) * divide_up(a.n_rows, tile.n);
}

// The tile with which the busiest SM finishes first.
uint32_t best_tile(const GemmArgs& a, const DeviceLimits& limits) {
  uint32_t best = kGemmTiles - 1;
  if (a.n_tok <= kTiles[best].m) return best;
  float best_time = 0.0f;
  for (uint32_t i = 0; i < kGemmTiles; ++i) {
    const Tile& tile = kTiles[i];
    if (tile.shared_bytes() > static_cast<size_t>(limits.shared_bytes)) continue;
    const uint32_t blocks = divide_up(n_blocks(tile, a), static_cast<uint32_t>(limits.n_processors));
    const float rate = tile.rate * (blocks < tile.enough ? kAloneRate : 1.0f);
    const float time = static_cast<float>(blocks) * static_cast<float>(tile.m * tile.n) / rate;
    if (best_time == 0.0f || time < best_time) {
      best_time = time;
      best = i;
    }
  }
  return best;
}

uint32_t best_parts(const GemmArgs& a, const Tile& tile, const DeviceLimits& limits) {
  const uint32_t blocks = n_blocks(tile, a);
  const auto processors = static_cast<uint32_t>(limits.n_processors);
  if (a.partial == nullptr || 4 * blocks > 3 * processors) return 1;
  const size_t room = a.n_partial / (size_t{a.n_tok} * a.n_rows);
  const uint32_t wanted = std::min({2 * processors / blocks, divide_up(a.n_cols, kSlice) / kPartSlices, kGemmParts});
  return std::max(1u, static_cast<uint32_t>(std::min<size_t>(wanted, room)));
}

}  // namespace

Status gemm_f16_tile(OpContext& cx, const GemmArgs& a, uint32_t tile_index, uint32_t n_parts) {
  const Tile& tile = kTiles[tile_index];
  const auto shared = static_cast<int>(tile.shared_bytes());
  WEIR_CUDA_TRY(cudaFuncSetAttribute(tile.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared),
                "gemm_f16: shared memory");
  const dim3 grid(divide_up(a.n_tok, tile.m), divide_up(a.n_rows, tile.n), n_parts);
  WEIR_TRY(launch("gemm_f16", tile.kernel, grid, tile.threads, tile.shared_bytes(), stream_of(cx), false, a));
  if (n_parts == 1) return {};
  const size_t pairs = size_t{a.n_tok} * a.n_rows / 2;
  const auto merge_blocks = static_cast<uint32_t>((pairs + kMergeThreads - 1) / kMergeThreads);
  return launch("gemm_f16: parts", merge_parts_kernel, merge_blocks, kMergeThreads, 0, stream_of(cx), false, a,
                n_parts);
}

Status gemm_f16(OpContext& cx, const GemmArgs& a) {
  DeviceLimits limits;
  WEIR_TRY(device_limits(limits));
  const uint32_t tile = best_tile(a, limits);
  return gemm_f16_tile(cx, a, tile, best_parts(a, kTiles[tile], limits));
}

Status gemm_f16_groups(OpContext& cx, const GemmGroups& g, uint32_t n_groups) {
  DeviceLimits limits;
  WEIR_TRY(device_limits(limits));
  // The tile for the rows that a group has on average: 16, 64 or 128, if the device has the shared memory for it.
  uint32_t index = g.usual_tok <= 16 ? 4 : g.usual_tok <= 64 ? 3 : 0;
  if (kTiles[index].shared_bytes() > static_cast<size_t>(limits.shared_bytes)) index = 3;
  const Tile& tile = kTiles[index];
  WEIR_CUDA_TRY(cudaFuncSetAttribute(tile.groups_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(tile.shared_bytes())),
                "gemm_f16: shared memory");
  const dim3 grid(divide_up(g.gemm.n_tok, tile.m), divide_up(g.gemm.n_rows, tile.n), n_groups);
  return launch("gemm_f16_groups", tile.groups_kernel, grid, tile.threads, tile.shared_bytes(), stream_of(cx), false,
                g);
}

}  // namespace weir::cuda
