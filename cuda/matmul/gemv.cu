// Matrix times vector: y = W x with W in its file's precision, read once at the speed of memory; also for up to eight vectors, which are called columns
// here.
//
// Blocks of 512 threads, one or two on a multiprocessor, stay for the whole matrix; a warp takes every n-th row. The first rows' weights are requested
// before the kernel waits for its predecessor, so that memory is busy while the input is normalised and quantised, which every block does for itself: it
// is some 16 KiB from the second-level cache, less than a barrier across the device would cost.
//
// A warp multiplies one stretch of its rows while the next one comes. It asks for that when the first is there, and not before: the compiler has one
// scoreboard count all loads that a loop carries from one round to the next, so that a warp that waits for some of them waits for all.
//
// With several columns reading them from shared memory becomes the limit, and not memory. So a warp has two rows in hand, for which it reads them once.
//
// A column's results have the bits that it gets alone. A lane adds the same units of a row in the same order however many rows and units it has in hand,
// warp sums pair the same lanes, each block has 512 threads, so that squares of inputs are summed in the same order too, and every multiplication that is
// followed by an addition is either written as fused or kept from it, which the compiler could otherwise decide kernel by kernel.
#include "cuda/matmul/gemv.cuh"

#include <algorithm>
#include <cstring>

#include "cuda/common/device.cuh"
#include "cuda/matmul/gemv_input.cuh"
#include "cuda/ops.h"

namespace weir::cuda {
namespace {

constexpr uint32_t kThreads = 512;
constexpr uint32_t kWarps = kThreads / kWarp;
static_assert(kWarp == kGroupUnits);

// Blocks of a multiprocessor. One has twice the registers for a thread. For integer formats that is faster, as the input is quantised once for the
// multiprocessor: Q4_0 1,352 us a step of the 8B model instead of 1,403. F16 is slower with one: 79 % of the copy bandwidth instead of 87.
template <class F, uint32_t kColumns>
constexpr uint32_t kBlocks = kColumns == 1 && !F::kInteger ? 2 : 1;

// Units a lane of each row in hand, with several columns: what 128 registers hold. `registers`: of a unit.
constexpr uint32_t unroll_of_columns(uint32_t columns, bool integer, uint32_t registers) {
  return (columns > 4 || (columns > 2 && registers > 5) ? 1 : 2) * (integer ? 1 : 2);
}

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
  uint32_t input_bytes;  // of shared memory, for a column
  uint32_t zero;         // 0, which the compiler does not know
  uint32_t n_columns;    // above kColumns / 2, for which there is a kernel of its own
};

template <uint32_t kColumns>
__device__ bool has_column(const GemvKernelArgs<kColumns>& a, uint32_t c) {
  return c <= kColumns / 2 || c < a.n_columns;
}

// Eight inputs of each lane into shared memory.
template <class F>
__device__ void store_inputs(const Eight& v, uint32_t at, uint32_t n_cols, std::byte* input) {
  if constexpr (F::kInteger) {
    quantize<F>(v, at, n_cols, input);
  } else {
    store_floats<F>(v, at, n_cols, input);
  }
}

// Columns `c` and following, as many as are read at the same time; square[] += their squares.
template <class F, uint32_t kColumns, uint32_t kBatch>
__device__ void take_batch(const GemvKernelArgs<kColumns>& a, std::byte* input, uint32_t c, float (&square)[kBatch]) {
  // A warp goes on while one of its lanes has inputs.
#pragma unroll 1
  for (uint32_t at = threadIdx.x * 8; at - threadIdx.x % kWarp * 8 < a.n_cols; at += kThreads * 8) {
    Eight v[kBatch], norm;
#pragma unroll
    for (uint32_t i = 0; i < kBatch; ++i) {
      if (at < a.n_cols && has_column(a, c + i)) v[i].read(a.x[c + i] + at);
    }
    if (at < a.n_cols && a.norm != nullptr) norm.read_constant(a.norm + at);
#pragma unroll
    for (uint32_t i = 0; i < kBatch; ++i) {
      if (!has_column(a, c + i)) continue;
      if (at < a.n_cols && a.norm != nullptr) apply_norm(v[i], norm, square[i]);
      store_inputs<F>(v[i], at, a.n_cols, input + (c + i) * a.input_bytes);
    }
  }
}

// All inputs into shared memory, and the warps' sums of their squares.
template <class F, uint32_t kColumns>
__device__ void take_inputs(const GemvKernelArgs<kColumns>& a, std::byte* input, float (*sums)[kWarps]) {
  constexpr uint32_t kBatch = kColumns < 4 ? kColumns : 4;  // 32 registers
#pragma unroll 1
  for (uint32_t c = 0; c < kColumns; c += kBatch) {
    float square[kBatch] = {};
    take_batch<F, kColumns, kBatch>(a, input, c, square);
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

// The part that a row belongs to, and the first of its rows.
template <uint32_t kColumns>
__device__ uint32_t part_of(const GemvKernelArgs<kColumns>& a, uint32_t row) {
  return row < a.end_row[0] ? 0 : row < a.end_row[1] ? 1 : 2;
}
template <uint32_t kColumns>
__device__ uint32_t first_row(const GemvKernelArgs<kColumns>& a, uint32_t part) {
  return part == 0 ? 0 : a.end_row[part - 1];
}

// What is added to the output of a row.
struct Addends {
  float bias = 0.0f, old = 0.0f;
};

template <uint32_t kColumns>
__device__ Addends read_addends(const GemvKernelArgs<kColumns>& a, uint32_t c, uint32_t row) {
  const uint32_t part = part_of(a, row), at = row - first_row(a, part);
  Addends out;
  if (a.bias[part] != nullptr) out.bias = __ldg(a.bias[part] + at);
  if (a.accumulate[part]) out.old = a.y[c][part][at];
  return out;
}

template <uint32_t kColumns>
__device__ void store_output(const GemvKernelArgs<kColumns>& a, uint32_t c, uint32_t row, float y, const Addends& add) {
  const uint32_t part = part_of(a, row);
  if (a.bias[part] != nullptr) y += add.bias;
  if (a.accumulate[part]) y += add.old;
  a.y[c][part][row - first_row(a, part)] = y;
}

// One column: the lanes' sums become the row's output.
template <bool kGlu>
__device__ void store_row(const GemvKernelArgs<1>& a, uint32_t row, float* total, float scale, const Addends& add) {
#pragma unroll
  for (uint32_t m = 0; m < kHeld<kGlu, 1>; ++m) total[m] = __fmul_rn(warp_sum(total[m]), scale);
  if (threadIdx.x % kWarp != 0) return;
  if constexpr (kGlu) {
    a.y[0][0][row] = gated(total[0], total[1]);
  } else {
    store_output(a, 0, row, total[0], add);
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
    const uint32_t r = row + held * stride;
    if (stores && r < a.end_row[2]) store_output(a, c, r, y, read_addends(a, c, r));
  }
}

// The end of the rows in hand: their outputs are stored, and the lanes' sums are 0 again.
template <bool kGlu, uint32_t kColumns>
__device__ void end_rows(const GemvKernelArgs<kColumns>& a, uint32_t row, uint32_t stride, float* total, float scale,
                         const Addends& add) {
  if constexpr (kColumns == 1) {
    store_row<kGlu>(a, row, total, scale, add);
  } else {
    store_rows<kGlu>(a, row, stride, total, scale);
  }
#pragma unroll
  for (uint32_t i = 0; i < kHeld<kGlu, kColumns> * kColumns; ++i) total[i] = 0.0f;
}

// What one warp reads at a time: kUnroll units a lane of each row in hand.
template <class F, uint32_t kUnroll, uint32_t kRows>
struct Stretch {
  typename F::Regs regs[kRows][kUnroll];
};

// The parts' planes.
template <class F>
struct Parts {
  typename F::Planes planes[3];
};

template <class Regs>
__device__ uint32_t first_word(const Regs& regs) {
  uint32_t word;
  memcpy(&word, &regs, sizeof word);
  return word;
}

// What a warp has still to read, stretch after stretch of its rows.
template <class F, uint32_t kUnroll, bool kGlu, uint32_t kColumns>
struct Reader {
  static constexpr uint32_t kRows = kHeld<kGlu, kColumns>;
  // Gate and up are always parts 0 and 1. Where registers are few, a part's planes are looked up with each read.
  static constexpr bool kHoldsPlanes = !kGlu && kColumns == 1 && sizeof(typename F::Planes) <= 24;
  const GemvKernelArgs<kColumns>& a;
  const Parts<F>& parts;
  uint32_t row, stride, n_units;
  uint32_t unit = 0;  // of the row, the next one of this lane
  // The unit's number in the matrix, for each of the rows in hand; gate and up have the same. 32 bits are enough for 64 GiB.
  uint32_t index[kGlu ? 1 : kRows] = {};
  uint32_t part[kRows] = {};                                 // of the rows in hand
  typename F::Planes planes[kHoldsPlanes ? kRows : 1] = {};  // of those parts

  __device__ Reader(const GemvKernelArgs<kColumns>& args, const Parts<F>& matrices, uint32_t first, uint32_t step)
      : a(args), parts(matrices), row(first), stride(step), n_units(args.n_cols / F::kUnit) {
    begin_row();
  }
  // Whether there are as many rows as a warp has in hand, from row r on.
  __device__ bool has_rows(uint32_t r) const { return kGlu || kRows == 1 || r + stride < a.end_row[2]; }
  // The first row in hand after those from row r on.
  __device__ uint32_t next(uint32_t r) const { return r + (kGlu ? 1 : kRows) * stride; }

  __device__ void begin_row() {
    unit = threadIdx.x % kWarp;
    if (row >= a.end_row[2]) return;
    if constexpr (kGlu) {
      index[0] = row * n_units + unit;
    } else {
#pragma unroll
      for (uint32_t m = 0; m < kRows; ++m) {
        if (m > 0 && !has_rows(row)) continue;
        const uint32_t r = row + m * stride;
        part[m] = part_of(a, r);
        if (kHoldsPlanes) planes[m] = parts.planes[part[m]];
        index[m] = (r - first_row(a, part[m])) * n_units + unit;
      }
    }
  }
  // As soon as `last` is there, on which the addresses are made to depend.
  __device__ void read_after(const Stretch<F, kUnroll, kRows>& last, Stretch<F, kUnroll, kRows>& out) {
    const uint32_t nothing = first_word(last.regs[0][0]) & a.zero;
#pragma unroll
    for (uint32_t& i : index) i += nothing;
    read(out);
  }
  __device__ void read(Stretch<F, kUnroll, kRows>& out) {
    if (row >= a.end_row[2]) return;
#pragma unroll
    for (uint32_t m = 0; m < kRows; ++m) {
      if (m > 0 && !has_rows(row)) continue;
      const typename F::Planes& all = kGlu           ? parts.planes[m]
                                      : kHoldsPlanes ? planes[kHoldsPlanes ? m : 0]
                                                     : parts.planes[part[m]];
      const typename F::Planes from = F::at(all, index[kGlu ? 0 : m]);
#pragma unroll
      for (uint32_t u = 0; u < kUnroll; ++u) {
        if (unit + u * kWarp < n_units) out.regs[m][u] = F::load(F::at(from, u * kWarp));
      }
    }
#pragma unroll
    for (uint32_t& i : index) i += kUnroll * kWarp;
    unit += kUnroll * kWarp;
    if (unit - threadIdx.x % kWarp < n_units) return;
    row = next(row);
    begin_row();
  }
};

// A unit of the first kRows rows times all columns, whose first has its input `at`; total[kRows * kColumns] by row. Lanes that the row has no unit for keep
// their sums.
template <class F, uint32_t kRows, uint32_t kColumns, uint32_t kUnroll, uint32_t kAllRows>
__device__ void multiply(const GemvKernelArgs<kColumns>& a, const std::byte* at, bool has_unit,
                         const Stretch<F, kUnroll, kAllRows>& now, uint32_t u, float* total) {
  typename F::Words words[kRows];
#pragma unroll
  for (uint32_t m = 0; m < kRows; ++m) words[m] = F::unpack(now.regs[m][u], threadIdx.x % 8);
#pragma unroll
  for (uint32_t c = 0; c < kColumns; ++c) {
    if (!has_column(a, c)) continue;
    const std::byte* input = at + c * a.input_bytes;
#pragma unroll
    for (uint32_t m = 0; m < kRows; ++m) {
      float& sum = total[m * kColumns + c];
      const float more = F::dot(words[m], input, sum);
      sum = has_unit ? more : sum;
    }
  }
}

// kGlu: matrices 0 and 1 have the same rows. Else the parts' rows follow one another.
template <class F, uint32_t kUnroll, bool kGlu, uint32_t kColumns>
__global__ void __launch_bounds__(kThreads, kBlocks<F, kColumns>)
    gemv_kernel(const __grid_constant__ GemvKernelArgs<kColumns> a, const __grid_constant__ Parts<F> parts) {
  constexpr uint32_t kRows = kHeld<kGlu, kColumns>;
  extern __shared__ __align__(16) std::byte shared[];
  __shared__ float sums[kColumns][kWarps];
  const uint32_t lane = threadIdx.x % kWarp, stride = gridDim.x * kWarps, n_rows = a.end_row[2];
  uint32_t row = threadIdx.x / kWarp * gridDim.x + blockIdx.x;

  if (a.norm != nullptr && threadIdx.x * 8 < a.n_cols) prefetch(a.norm + threadIdx.x * 8);
  Reader<F, kUnroll, kGlu, kColumns> reader(a, parts, row, stride);
  Addends add;  // of the row in hand, read long before they are needed
  const auto read_add = [&] {
    if (kColumns == 1 && !kGlu && lane == 0) add = read_addends(a, 0, row);
  };
  Stretch<F, kUnroll, kRows> even = {};
  reader.read(even);
  wait_for_previous();
  // Only now: the next kernel may then rely on everything before this one (attention reads page tables ahead).
  start_next();
  if (row < n_rows) read_add();
  take_inputs<F>(a, shared, sums);
  const uint32_t column = kColumns == 1 ? 0 : lane / kSpread<2 * kColumns> % kColumns;  // whose output the lane stores
  const float scale = norm_scale(a.norm, sums[column], a.n_cols, a.eps);

  const std::byte* const input = unit_at<F>(shared, lane);
  const std::byte* at = input;  // of the lane's next unit
  uint32_t unit = lane;
  float total[kRows * kColumns] = {};
  // Multiplies a stretch; whether there is another.
  const auto take = [&](const Stretch<F, kUnroll, kRows>& now) {
#pragma unroll
    for (uint32_t u = 0; u < kUnroll; ++u) {
      const bool has_unit = unit + u * kWarp < reader.n_units;
      const std::byte* from = at + u * (F::kPieces * kPieceStride);
      if (reader.has_rows(row)) {
        multiply<F, kRows>(a, from, has_unit, now, u, total);
      } else {
        multiply<F, 1>(a, from, has_unit, now, u, total);
      }
    }
    at += kUnroll * (F::kPieces * kPieceStride);
    unit += kUnroll * kWarp;
    if (unit - lane < reader.n_units) return true;
    end_rows<kGlu>(a, row, stride, total, scale, add);
    at = input;
    unit = lane;
    row = reader.next(row);
    if (row >= n_rows) return false;
    read_add();
    return true;
  };
  if (row >= n_rows) return;
  Stretch<F, kUnroll, kRows> odd = {};
  do {
    reader.read_after(even, odd);
    if (!take(even)) return;
    reader.read_after(odd, even);
  } while (take(odd));
}

size_t shared_room() { return device().shared_bytes - 1024; }  // the kernel's own arrays

template <class F, uint32_t kUnroll, bool kGlu, uint32_t kColumns>
Status launch_gemv(OpContext& cx, GemvKernelArgs<kColumns> k, bool overlap) {
  const auto kernel = gemv_kernel<F, kUnroll, kGlu, kColumns>;
  k.input_bytes = column_bytes(input_shape<F>(), k.n_cols, kUnroll);
  const size_t bytes = size_t{k.n_columns} * k.input_bytes;
  // Of the 48 KiB that need no asking the kernel's own array takes a little. The most there is, as one graph may hold a kernel with several sizes.
  if (bytes > 47 * 1024) {
    const auto most = static_cast<int>(shared_room());
    WEIR_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most),
                  "shared memory of gemv");
  }
  const uint32_t needed = (k.end_row[2] + kWarps - 1) / kWarps, most = device().n_processors * kBlocks<F, kColumns>;
  const uint32_t blocks = needed < most ? needed : most;
  Parts<F> parts;
  for (uint32_t i = 0; i < 3; ++i) {
    const uint32_t n_rows = kGlu || i == 0 ? k.end_row[i] : k.end_row[i] - k.end_row[i - 1];
    parts.planes[i] = F::planes(k.data[i], size_t{n_rows} * (k.n_cols / F::kUnit));
  }
  return launch("gemv", kernel, dim3(blocks), dim3(kThreads), bytes, stream_of(cx), overlap, k, parts);
}

// As many units at once as a row has lanes for, up to what registers and shared memory hold.
template <WeightType T, bool kGlu, uint32_t kColumns>
Status pick_unroll(OpContext& cx, const GemvKernelArgs<kColumns>& k, bool overlap) {
  using F = Format<T>;
  if constexpr (kColumns > 1) {
    return launch_gemv<F, unroll_of_columns(kColumns, F::kInteger, F::kRegisters), kGlu>(cx, k, overlap);
  } else {
    const uint32_t n_units = k.n_cols / F::kUnit;
    constexpr uint32_t kMost = 4 / (kGlu ? 2 : 1), kTwo = kMost < 2 ? kMost : 2;
    const auto fits = [&](uint32_t unroll) {
      return column_bytes(input_shape<F>(), k.n_cols, unroll) <= shared_room();
    };
    if (n_units <= kWarp || !fits(kTwo)) return launch_gemv<F, 1, kGlu>(cx, k, overlap);
    if (n_units <= 2 * kWarp || !fits(kMost)) return launch_gemv<F, kTwo, kGlu>(cx, k, overlap);
    return launch_gemv<F, kMost, kGlu>(cx, k, overlap);
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

// What the format of a type says of a product.
struct TypeTraits {
  InputShape input;
  bool integer;
  uint32_t registers;
};
TypeTraits traits_of(WeightType type) {
  switch (type) {
#define WEIR_QUANT(Name, text, gguf_id, block_weights, block_bytes) \
  case WeightType::k##Name: {                                       \
    using F = Format<WeightType::k##Name>;                          \
    return {input_shape<F>(), F::kInteger, F::kRegisters};          \
  }
#include "quant/quants.inc"
#undef WEIR_QUANT
  }
  return {};
}

// The kernel for n columns.
constexpr uint32_t kernel_columns(uint32_t n) { return n <= 2 ? n : n <= 4 ? 4 : kMostColumns; }

// Whether the inputs of n columns fit into shared memory together.
bool fit_together(WeightType type, uint32_t n, uint32_t n_cols) {
  const TypeTraits t = traits_of(type);
  const uint32_t unroll = n == 1 ? 1 : unroll_of_columns(kernel_columns(n), t.integer, t.registers);
  return size_t{n} * column_bytes(t.input, n_cols, unroll) <= shared_room();
}

// Columns whose inputs do not fit into shared memory together are computed in groups of about the same size, each of which reads the weights.
Status run_groups(OpContext& cx, WeightType type, bool glu, const AllColumns& all, bool overlap) {
  const auto fits_in = [&](uint32_t n_groups) {
    const uint32_t least = all.n_columns / n_groups, most = (all.n_columns + n_groups - 1) / n_groups;
    return fit_together(type, least, all.n_cols) && fit_together(type, most, all.n_cols);
  };
  uint32_t n_groups = 1;
  while (n_groups < all.n_columns && !fits_in(n_groups)) ++n_groups;
  for (uint32_t g = 0, first = 0; g < n_groups; ++g) {
    const uint32_t left = n_groups - g, n = (all.n_columns - first + left - 1) / left;
    const uint32_t columns = kernel_columns(n);
    const auto run = columns == 1   ? run_columns<1>
                     : columns == 2 ? run_columns<2>
                     : columns == 4 ? run_columns<4>
                                    : run_columns<kMostColumns>;
    WEIR_TRY(run(cx, type, glu, all, first, n, overlap || g > 0));
    first += n;
  }
  return {};
}

}  // namespace

uint32_t gemv_max_cols(WeightType type) {
  const InputShape input = traits_of(type).input;
  return static_cast<uint32_t>(shared_room() / column_bytes(input, 1, 1)) * kGroupUnits * input.weights;
}

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
