// Matrix times vector: y = W x with W in its file's precision, read once at the speed of memory; also for up to eight vectors, which are called columns
// here.
//
// Two blocks of 512 threads per multiprocessor stay for the whole matrix; a warp takes every n-th row. The first rows' weights are requested before
// the kernel waits for its predecessor, so that memory is busy while the input is normalised and quantised, which every block does for itself: it is
// some 16 KiB from the second-level cache, less than a barrier across the device would cost.
//
// With several columns reading them from shared memory becomes the limit, and not memory. So a warp has two rows in hand, for which it reads them once,
// and there is one block per multiprocessor, whose threads have twice the registers.
//
// A column's results have the bits that it gets alone. A lane adds the same units of a row in the same order however many rows and units it has in hand,
// warp sums pair the same lanes, each block has 512 threads, so that squares of inputs are summed in the same order too, and every multiplication that is
// followed by an addition is either written as fused or kept from it, which the compiler could otherwise decide kernel by kernel.
#include "cuda/gemv.cuh"

#include <algorithm>

#include "core/memory.h"
#include "cuda/cuda_ops.h"
#include "cuda/device.cuh"
#include "cuda/formats.cuh"

namespace weir::cuda {
namespace {

constexpr uint32_t kThreads = 512;
constexpr uint32_t kWarps = kThreads / kWarp;

// Blocks of a multiprocessor: with one, F16 had 79 % of the copy bandwidth instead of 87.
template <uint32_t kColumns>
constexpr uint32_t kBlocks = kColumns == 1 ? 2 : 1;

// Units a lane of each row in hand, with several columns: what 128 registers hold.
template <class F, uint32_t kColumns>
constexpr uint32_t kUnrollOfColumns = (F::kInteger ? 2 : 4) / (kColumns > 4 ? 2 : 1);

// Rows that a warp has in hand: of gate and up matrix, or its next two.
template <bool kGlu, uint32_t kColumns>
constexpr uint32_t kHeld = kGlu || kColumns > 1 ? 2 : 1;

// One launch: up to three matrices of one type. Kernels exist for 1, 2, 4 and 8 columns; fewer may be there.
template <uint32_t kColumns>
struct GemvKernelArgs {
  const uint8_t* data[3];
  const float* bias[3];
  float* y[kColumns][3];
  bool accumulate[3];
  uint32_t end_row[3];  // of the rows numbered through; unused parts repeat the last
  uint32_t n_cols;
  const float* x[kColumns];
  const float* norm;
  float eps;
  uint32_t n_columns;  // above kColumns / 2, for which there is a kernel of its own
};

template <uint32_t kColumns>
__device__ bool has_column(const GemvKernelArgs<kColumns>& a, uint32_t c) {
  return c <= kColumns / 2 || c < a.n_columns;
}

// Bytes of shared memory for the input of a column.
template <class F>
__host__ __device__ uint32_t column_bytes(uint32_t n_cols) {
  const size_t bytes = F::kInteger ? act_bytes(n_cols) : size_t{n_cols} * sizeof(float);
  return static_cast<uint32_t>(align_up(bytes, alignof(float4)));
}

// Eight inputs, times the norm's weights; `square` += their squares before that. The norm's scale is one number for all of them: it multiplies the
// outputs, so that nothing has to wait for it.
__device__ void read_input(const float* from, const float* norm, uint32_t at, float* v, float& square) {
#pragma unroll
  for (uint32_t i = 0; i < 8; i += 4) {
    const float4 x = *reinterpret_cast<const float4*>(from + at + i);
    v[i] = x.x, v[i + 1] = x.y, v[i + 2] = x.z, v[i + 3] = x.w;
    if (norm == nullptr) continue;
    const float4 w = __ldg(reinterpret_cast<const float4*>(norm + at + i));
    square += fmaf(x.w, x.w, fmaf(x.z, x.z, fmaf(x.x, x.x, x.y * x.y)));
    v[i] *= w.x, v[i + 1] *= w.y, v[i + 2] *= w.z, v[i + 3] *= w.w;
  }
}

// A column's quantised input in shared memory.
__device__ Act act_of(std::byte* shared, uint32_t n_cols) {
  const uint32_t n_blocks = n_cols / 32;
  auto* hi = reinterpret_cast<int4*>(shared);
  auto* lo = hi + 2 * n_blocks;
  auto* sum = reinterpret_cast<int2*>(lo + 2 * n_blocks);
  return {hi, lo, reinterpret_cast<float*>(sum + n_blocks), sum, n_blocks};
}

// Quantises eight inputs of each lane: four neighbouring lanes share a block of 32. An infinity or a NaN makes the scale NaN, as on the CPU.
__device__ void quantize(const float* v, uint32_t at, uint32_t n_cols, const Act& out) {
  uint32_t bits = 0;  // of the largest magnitude; as integers they are in the order of the numbers, NaN above all
#pragma unroll
  for (uint32_t i = 0; i < 8; ++i) bits = max(bits, __float_as_uint(v[i]) & 0x7FFFFFFFu);
  bits = max(bits, __shfl_xor_sync(kAllLanes, bits, 1));
  bits = max(bits, __shfl_xor_sync(kAllLanes, bits, 2));
  const bool finite = bits < 0x7F800000u;
  const float most = __uint_as_float(bits);
  // 127 * 256: the largest that leaves hi a signed byte after lo took its part.
  const float inverse = finite && most > 0.0f ? 32512.0f / most : 0.0f;
  uint32_t high[2] = {}, low[2] = {};
  int total = 0;
#pragma unroll
  for (uint32_t i = 0; i < 8; ++i) {
    const int q = __float2int_rn(v[i] * inverse);
    total += q;
    low[i / 4] |= (static_cast<uint32_t>(q) & 255u) << (i % 4 * 8);
    high[i / 4] |= (static_cast<uint32_t>((q + 128) >> 8) & 255u) << (i % 4 * 8);
  }
  const int half_sum = total + __shfl_xor_sync(kAllLanes, total, 1);
  const int other_sum = __shfl_xor_sync(kAllLanes, half_sum, 2);
  if (at >= n_cols) return;
  const uint32_t block = at / 32, part = at / 8 % 4;
  const uint32_t place = ((part / 2) * out.n_blocks + block) * 2 + part % 2;
  reinterpret_cast<uint2*>(out.hi)[place] = make_uint2(high[0], high[1]);
  reinterpret_cast<uint2*>(out.lo)[place] = make_uint2(low[0], low[1]);
  if (part == 0) {
    out.sum[block] = make_int2(half_sum, other_sum);
    out.scale[block] = finite ? most / 32512.0f : __uint_as_float(0x7FC00000u);
  }
}

// The first column's input in shared memory as F::dot takes it.
template <class F>
__device__ auto first_input(std::byte* shared, uint32_t n_cols) {
  if constexpr (F::kInteger) {
    return act_of(shared, n_cols);
  } else {
    return reinterpret_cast<float4*>(shared);
  }
}

// The input of the column that lies so many bytes behind.
template <class T>
__device__ T* moved(T* p, uint32_t bytes) {
  return reinterpret_cast<T*>(reinterpret_cast<std::byte*>(p) + bytes);
}
__device__ Act moved(const Act& a, uint32_t bytes) {
  return {moved(a.hi, bytes), moved(a.lo, bytes), moved(a.scale, bytes), moved(a.sum, bytes), a.n_blocks};
}

// Columns `c` and following into shared memory, as many as are read at the same time; square += their squares.
template <class F, uint32_t kColumns, uint32_t kBatch, class Input>
__device__ void quantize_inputs(const GemvKernelArgs<kColumns>& a, const Input& first, uint32_t c, float* square) {
  const uint32_t bytes = column_bytes<F>(a.n_cols);
  for (uint32_t begin = 0; begin < a.n_cols; begin += kThreads * 8) {
    const uint32_t at = begin + threadIdx.x * 8;
    float v[kBatch][8] = {};
#pragma unroll
    for (uint32_t i = 0; i < kBatch; ++i) {
      if (at < a.n_cols && has_column(a, c + i)) read_input(a.x[c + i], a.norm, at, v[i], square[i]);
    }
#pragma unroll
    for (uint32_t i = 0; i < kBatch; ++i) {
      if (has_column(a, c + i)) quantize(v[i], at, a.n_cols, moved(first, (c + i) * bytes));
    }
  }
}

template <class F, uint32_t kColumns, uint32_t kBatch, class Input>
__device__ void store_inputs(const GemvKernelArgs<kColumns>& a, const Input& first, uint32_t c, float* square) {
  constexpr uint32_t kQuads = F::kUnit / 4;
  const uint32_t n_units = a.n_cols / F::kUnit, bytes = column_bytes<F>(a.n_cols);
  for (uint32_t at = threadIdx.x * 8; at < a.n_cols; at += kThreads * 8) {
    float v[kBatch][8];
#pragma unroll
    for (uint32_t i = 0; i < kBatch; ++i) {
      if (has_column(a, c + i)) read_input(a.x[c + i], a.norm, at, v[i], square[i]);
    }
#pragma unroll
    for (uint32_t i = 0; i < kBatch; ++i) {
      if (!has_column(a, c + i)) continue;
      float4* out = moved(first, (c + i) * bytes);
#pragma unroll
      for (uint32_t j = 0; j < 8; j += 4) {
        const uint32_t quad = (at + j) / 4;
        out[quad % kQuads * n_units + quad / kQuads] = make_float4(v[i][j], v[i][j + 1], v[i][j + 2], v[i][j + 3]);
      }
    }
  }
}

// All inputs into shared memory, and the warps' sums of their squares.
template <class F, uint32_t kColumns, class Input>
__device__ void take_inputs(const GemvKernelArgs<kColumns>& a, const Input& first, float (*sums)[kWarps]) {
  constexpr uint32_t kBatch = kColumns < 4 ? kColumns : 4;  // 32 registers
#pragma unroll 1
  for (uint32_t c = 0; c < kColumns; c += kBatch) {
    float square[kBatch] = {};
    if constexpr (F::kInteger) {
      quantize_inputs<F, kColumns, kBatch>(a, first, c, square);
    } else {
      store_inputs<F, kColumns, kBatch>(a, first, c, square);
    }
#pragma unroll
    for (uint32_t i = 0; i < kBatch; ++i) {
      square[i] = warp_sum(square[i]);
      if (threadIdx.x % kWarp == 0) sums[c + i][threadIdx.x / kWarp] = square[i];
    }
  }
  __syncthreads();
}

// What a column's outputs are multiplied by, from the warps' sums of its squares.
__device__ float norm_scale(const float* norm, const float* sums, uint32_t n_cols, float eps) {
  if (norm == nullptr) return 1.0f;
  float sum = 0.0f;
#pragma unroll
  for (uint32_t i = 0; i < kWarps; ++i) sum += sums[i];
  return rsqrtf(sum / static_cast<float>(n_cols) + eps);
}

__device__ float gated(float gate, float up) { return gate / (1.0f + __expf(-gate)) * up; }

template <uint32_t kColumns>
__device__ void store_output(const GemvKernelArgs<kColumns>& a, uint32_t c, uint32_t row, float y) {
  const uint32_t part = row < a.end_row[0] ? 0 : row < a.end_row[1] ? 1 : 2;
  const uint32_t at = row - (part == 0 ? 0 : a.end_row[part - 1]);
  if (a.bias[part] != nullptr) y += a.bias[part][at];
  if (a.accumulate[part]) y += a.y[c][part][at];
  a.y[c][part][at] = y;
}

// One column: the lanes' sums become the row's output.
template <bool kGlu>
__device__ void store_row(const GemvKernelArgs<1>& a, uint32_t row, float* total, float scale) {
#pragma unroll
  for (uint32_t m = 0; m < kHeld<kGlu, 1>; ++m) total[m] = __fmul_rn(warp_sum(total[m]), scale);
  if (threadIdx.x % kWarp != 0) return;
  if constexpr (kGlu) {
    a.y[0][0][row] = gated(total[0], total[1]);
  } else {
    store_output(a, 0, row, total[0]);
  }
}

// Lanes that have the same one of kN sums after spread_sums: sum lane / kSpread<kN>.
template <uint32_t kN>
constexpr uint32_t kSpread = kWarp / kN;

// Sums v[kN] over the lanes, each pairwise as warp_sum does; a lane gets the one that kSpread says. Half the sums leave a lane with each exchange.
template <uint32_t kN, uint32_t kMask = kWarp / 2>
__device__ float spread_sums(float* v) {
  if constexpr (kMask == 0) {
    return v[0];
  } else if constexpr (kN == 1) {
    v[0] += __shfl_xor_sync(kAllLanes, v[0], kMask);
    return spread_sums<1, kMask / 2>(v);
  } else {
    const bool upper = (threadIdx.x & kMask) != 0;
#pragma unroll
    for (uint32_t i = 0; i < kN / 2; ++i) {
      const float kept = upper ? v[i + kN / 2] : v[i], given = upper ? v[i] : v[i + kN / 2];
      v[i] = kept + __shfl_xor_sync(kAllLanes, given, kMask);
    }
    return spread_sums<kN / 2, kMask / 2>(v);
  }
}

// Several columns. `scale` is of the column that the lane gets.
template <bool kGlu, uint32_t kColumns>
__device__ void store_rows(const GemvKernelArgs<kColumns>& a, uint32_t row, uint32_t stride, float* total,
                           float scale) {
  constexpr uint32_t kN = 2 * kColumns;
  const uint32_t lane = threadIdx.x % kWarp, held = lane / kSpread<kN> / kColumns, c = lane / kSpread<kN> % kColumns;
  const float y = __fmul_rn(spread_sums<kN>(total), scale);
  const bool stores = lane % kSpread<kN> == 0 && has_column(a, c);
  if constexpr (kGlu) {
    const float up = __shfl_xor_sync(kAllLanes, y, kWarp / 2);  // gates lie in the lower half of the lanes
    if (stores && held == 0) a.y[c][0][row] = gated(y, up);
  } else {
    if (stores && row + held * stride < a.end_row[2]) store_output(a, c, row + held * stride, y);
  }
}

// The end of the rows in hand: their outputs are stored, and the lanes' sums are 0 again.
template <bool kGlu, uint32_t kColumns>
__device__ void end_rows(const GemvKernelArgs<kColumns>& a, uint32_t row, uint32_t stride, float* total, float scale) {
  if constexpr (kColumns == 1) {
    store_row<kGlu>(a, row, total, scale);
  } else {
    store_rows<kGlu>(a, row, stride, total, scale);
  }
#pragma unroll
  for (uint32_t i = 0; i < kHeld<kGlu, kColumns> * kColumns; ++i) total[i] = 0.0f;
}

// What one warp reads at a time: kUnroll units a lane of each of kRows rows.
template <class F, uint32_t kUnroll, uint32_t kRows>
struct Stretch {
  typename F::Regs regs[kRows][kUnroll];
};

// Unit u of the stretch, which is `unit` of its rows, times all columns: of the first kRows rows; total[kRows * kColumns] by row.
template <class F, uint32_t kRows, uint32_t kColumns, class Held, class Input>
__device__ void multiply(const GemvKernelArgs<kColumns>& a, const Input& first, const Held& now, uint32_t u,
                         uint32_t unit, uint32_t n_units, float* total) {
  typename F::Words words[kRows];
#pragma unroll
  for (uint32_t m = 0; m < kRows; ++m) words[m] = F::unpack(now.regs[m][u], unit % 8);
#pragma unroll
  for (uint32_t c = 0; c < kColumns; ++c) {
    if (!has_column(a, c)) continue;
    const Input input = moved(first, c * column_bytes<F>(a.n_cols));
#pragma unroll
    for (uint32_t m = 0; m < kRows; ++m) {
      float& sum = total[m * kColumns + c];
      sum = F::dot(words[m], input, unit, n_units, sum);
    }
  }
}

// kGlu: matrices 0 and 1 have the same rows. Else the parts' rows follow one another.
template <class F, uint32_t kUnroll, bool kGlu, uint32_t kColumns>
__global__ void __launch_bounds__(kThreads, kBlocks<kColumns>)
    gemv_kernel(const __grid_constant__ GemvKernelArgs<kColumns> a) {
  constexpr uint32_t kRows = kHeld<kGlu, kColumns>;
  extern __shared__ __align__(16) std::byte shared[];
  __shared__ float sums[kColumns][kWarps];
  const uint32_t lane = threadIdx.x % kWarp, n_units = a.n_cols / F::kUnit;
  const uint32_t n_rows = a.end_row[2], stride = gridDim.x * kWarps;
  const uint32_t n_stretches = (n_units + kWarp * kUnroll - 1) / (kWarp * kUnroll);
  uint32_t row = threadIdx.x / kWarp * gridDim.x + blockIdx.x, stretch = 0;

  // Whether there are as many rows as a warp has in hand, from row r on.
  const auto has_rows = [&](uint32_t r) { return kGlu || kRows == 1 || r + stride < n_rows; };
  const auto load = [&](uint32_t first_held, uint32_t s, Stretch<F, kUnroll, kRows>& out) {
#pragma unroll
    for (uint32_t m = 0; m < kRows; ++m) {
      if (m > 0 && !has_rows(first_held)) continue;
      const uint32_t r = kGlu ? first_held : first_held + m * stride;
      const uint32_t part = kGlu || r < a.end_row[0] ? 0 : r < a.end_row[1] ? 1 : 2;
      const uint32_t begin = part == 0 ? 0 : a.end_row[part - 1];
      const size_t n_all = size_t{a.end_row[part] - begin} * n_units;
      const typename F::Planes planes = F::planes(a.data[kGlu ? m : part], n_all);
#pragma unroll
      for (uint32_t u = 0; u < kUnroll; ++u) {
        const uint32_t unit = (s * kUnroll + u) * kWarp + lane;
        if (unit < n_units) out.regs[m][u] = F::load(planes, size_t{r - begin} * n_units + unit);
      }
    }
  };

  Stretch<F, kUnroll, kRows> now;
  if (row < n_rows) load(row, 0, now);
  wait_for_previous();
  // Only now: the next kernel may then rely on everything before this one (attention reads page tables ahead).
  start_next();
  const auto first = first_input<F>(shared, a.n_cols);
  take_inputs<F>(a, first, sums);
  const uint32_t column = kColumns == 1 ? 0 : lane / kSpread<2 * kColumns> % kColumns;  // whose output the lane stores
  const float scale = norm_scale(a.norm, sums[column], a.n_cols, a.eps);

  float total[kRows * kColumns] = {};
  while (row < n_rows) {
    const bool last = stretch + 1 == n_stretches;
    const uint32_t next_row = last ? row + (kGlu ? 1 : kRows) * stride : row, next_stretch = last ? 0 : stretch + 1;
    Stretch<F, kUnroll, kRows> next;
    if (next_row < n_rows) load(next_row, next_stretch, next);
#pragma unroll
    for (uint32_t u = 0; u < kUnroll; ++u) {
      const uint32_t unit = (stretch * kUnroll + u) * kWarp + lane;
      if (unit >= n_units) continue;
      if (has_rows(row)) {
        multiply<F, kRows>(a, first, now, u, unit, n_units, total);
      } else {
        multiply<F, 1>(a, first, now, u, unit, n_units, total);
      }
    }
    if (last) end_rows<kGlu>(a, row, stride, total, scale);
    now = next;
    row = next_row;
    stretch = next_stretch;
  }
}

size_t shared_room() { return device().shared_bytes - 1024; }  // the kernel's own arrays

template <uint32_t kColumns>
Status launch_gemv(OpContext& cx, void (*kernel)(GemvKernelArgs<kColumns>), size_t bytes,
                   const GemvKernelArgs<kColumns>& k, bool overlap) {
  // Of the 48 KiB that need no asking the kernel's own array takes a little. The most there is, as one graph may hold a kernel with several sizes.
  if (bytes > 47 * 1024) {
    const auto most = static_cast<int>(shared_room());
    WEIR_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most),
                  "shared memory of gemv");
  }
  const uint32_t needed = (k.end_row[2] + kWarps - 1) / kWarps, most = device().n_processors * kBlocks<kColumns>;
  const uint32_t blocks = needed < most ? needed : most;
  return launch("gemv", kernel, dim3(blocks), dim3(kThreads), bytes, stream_of(cx), overlap, k);
}

// As many units at once as a row has lanes for, up to what registers hold.
template <WeightType T, bool kGlu, uint32_t kColumns>
Status pick_unroll(OpContext& cx, const GemvKernelArgs<kColumns>& k, bool overlap) {
  using F = Format<T>;
  const size_t bytes = size_t{k.n_columns} * column_bytes<F>(k.n_cols);
  if constexpr (kColumns > 1) {
    return launch_gemv(cx, gemv_kernel<F, kUnrollOfColumns<F, kColumns>, kGlu, kColumns>, bytes, k, overlap);
  } else {
    const uint32_t n_units = k.n_cols / F::kUnit;
    constexpr uint32_t kMost = (F::kInteger ? 2 : 4) / (kGlu ? 2 : 1), kTwo = kMost < 2 ? kMost : 2;
    if (n_units <= kWarp) return launch_gemv(cx, gemv_kernel<F, 1, kGlu, 1>, bytes, k, overlap);
    if (n_units <= 2 * kWarp) return launch_gemv(cx, gemv_kernel<F, kTwo, kGlu, 1>, bytes, k, overlap);
    return launch_gemv(cx, gemv_kernel<F, kMost, kGlu, 1>, bytes, k, overlap);
  }
}

template <uint32_t kColumns>
Status pick_type(OpContext& cx, WeightType type, bool glu, const GemvKernelArgs<kColumns>& k, bool overlap) {
  switch (type) {
#define WEIR_QUANT(Name, text, gguf_id, block_weights, block_bytes)     \
  case WeightType::k##Name:                                             \
    return glu ? pick_unroll<WeightType::k##Name, true>(cx, k, overlap) \
               : pick_unroll<WeightType::k##Name, false>(cx, k, overlap);
#include "quant/quants.inc"
#undef WEIR_QUANT
  }
  return fail(WEIR_ERR_INTERNAL, "gemv: weight type %d", static_cast<int>(type));
}

using AllColumns = GemvKernelArgs<kMostColumns>;

// Columns [first, first + n) of `all`, n at most kColumns, with the kernel for kColumns.
template <uint32_t kColumns>
Status run_columns(OpContext& cx, WeightType type, bool glu, const AllColumns& all, uint32_t first, uint32_t n,
                   bool overlap) {
  GemvKernelArgs<kColumns> k = {};
  std::copy_n(all.data, 3, k.data);
  std::copy_n(all.bias, 3, k.bias);
  std::copy_n(all.accumulate, 3, k.accumulate);
  std::copy_n(all.end_row, 3, k.end_row);
  k.n_cols = all.n_cols;
  k.norm = all.norm;
  k.eps = all.eps;
  k.n_columns = n;
  std::copy_n(all.x + first, n, k.x);
  for (uint32_t c = 0; c < n; ++c) std::copy_n(all.y[first + c], 3, k.y[c]);
  return pick_type(cx, type, glu, k, overlap);
}

// Bytes of shared memory for 32 inputs of a column: 64 of quants and 12, or f32.
uint32_t bytes_of_32(WeightType type) {
  return type == WeightType::kF32 || type == WeightType::kF16 || type == WeightType::kBF16 ? 128 : 76;
}

// Columns whose inputs do not fit into shared memory together are computed in groups of about the same size, each of which reads the weights.
Status run_groups(OpContext& cx, WeightType type, bool glu, const AllColumns& all, bool overlap) {
  const size_t fit = std::max<size_t>(1, shared_room() / align_up(all.n_cols / 32 * bytes_of_32(type), 16));
  const auto n_groups = static_cast<uint32_t>((all.n_columns + fit - 1) / fit);
  for (uint32_t g = 0, first = 0; g < n_groups; ++g) {
    const uint32_t left = n_groups - g, n = (all.n_columns - first + left - 1) / left;
    const auto run = n == 1   ? run_columns<1>
                     : n == 2 ? run_columns<2>
                     : n <= 4 ? run_columns<4>
                              : run_columns<kMostColumns>;
    WEIR_TRY(run(cx, type, glu, all, first, n, overlap || g > 0));
    first += n;
  }
  return {};
}

}  // namespace

uint32_t gemv_max_cols(WeightType type) { return static_cast<uint32_t>(shared_room() / bytes_of_32(type)) * 32; }

Status gemv(OpContext& cx, const GemvArgs& a) {
  if (a.n_more >= kMostColumns)
    return fail(WEIR_ERR_INTERNAL, "gemv: %u columns, at most %u", a.n_more + 1, kMostColumns);
  bool done[3] = {};
  bool first = true;
  for (uint32_t i = 0; i < a.n_parts; ++i) {
    if (done[i]) continue;
    AllColumns k = {};
    k.n_cols = a.part[i].w.n_cols;
    k.norm = a.norm;
    k.eps = a.eps;
    k.n_columns = 1 + a.n_more;
    k.x[0] = a.x;
    for (uint32_t c = 0; c < a.n_more; ++c) k.x[1 + c] = a.more[c].x;
    uint32_t n = 0, rows = 0;
    for (uint32_t j = i; j < a.n_parts; ++j) {
      if (a.part[j].w.type != a.part[i].w.type || (a.glu && j > 1)) continue;
      done[j] = true;
      rows = a.glu ? a.part[j].w.n_rows : rows + a.part[j].w.n_rows;
      k.data[n] = a.part[j].w.data;
      k.bias[n] = a.part[j].bias;
      k.y[0][n] = a.part[j].y;
      for (uint32_t c = 0; c < a.n_more; ++c) k.y[1 + c][n] = a.more[c].y[j];
      k.accumulate[n] = a.part[j].accumulate;
      k.end_row[n++] = rows;
    }
    for (; n < 3; ++n) {
      k.data[n] = k.data[n - 1];
      k.end_row[n] = rows;
    }
    WEIR_TRY(run_groups(cx, a.part[i].w.type, a.glu, k, a.overlap || !first));
    first = false;
  }
  return {};
}

}  // namespace weir::cuda
