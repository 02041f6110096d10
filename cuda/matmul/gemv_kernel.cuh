// Matrix-vector products (GEMV), y = W x. W keeps the precision of its file and is read once, at the speed of memory. A
// launch multiplies up to eight input vectors, which are called columns here.
//
// Launch: persistent blocks of 512 threads, one or two per SM; each warp takes every n-th row of W. A warp loads the
// weights of its first rows before the kernel waits for the previous kernel, so that memory is busy while the input is
// normalised and quantised. Every block does that for itself: it reads some 16 KiB from L2, which takes less time than
// a barrier across the device.
//
// Double buffering: a warp multiplies one tile of weights while the next one loads. It issues the loads of the next
// tile when the current tile has arrived, and not earlier: the compiler tracks all loads whose results are carried from
// one iteration of the loop to the next with one scoreboard, so a warp that waits for one of two tiles in flight waits
// for both. GemvKernelArgs::zero enforces the order.
//
// With several columns the limit is reading them from shared memory, not reading W from memory. So a warp works on two
// rows at a time and reads the columns once for both.
//
// A column's results have the same bits as when it is computed alone. A lane adds the same units of a row in the same
// order, however many rows and units it holds. Warp sums pair the same lanes. Every block has 512 threads, so the
// squares of the inputs are summed in the same order. Every multiplication that is followed by an addition is written
// either as an fma or as a separate multiplication; otherwise the compiler could fuse it in one kernel and not in
// another.
//
// Templates: cmake/WeirCuda.cmake makes sources that instantiate gemv_of_type, each for a few weight types.
#pragma once

#include <algorithm>
#include <cstring>

#include "cuda/common/device.cuh"
#include "cuda/matmul/gemv.cuh"
#include "cuda/matmul/gemv_input.cuh"

namespace weir::cuda {
namespace gemv_kernels {

inline constexpr uint32_t kThreads = 512;
inline constexpr uint32_t kWarps = kThreads / kWarp;
static_assert(kWarp == kGroupUnits);

// Blocks per SM. With one block a thread has twice the registers. For integer formats that is faster, because the input
// is quantised once per SM: Q4_0 takes 1,352 us per step of the 8B model instead of 1,403. F16 is slower with one
// block: 79 % of the copy bandwidth instead of 87.
template <class F, uint32_t kColumns>
constexpr uint32_t kBlocks = kColumns == 1 && !F::kInteger ? 2 : 1;

// Units per lane and row that a warp loads at a time, with several columns: as many as 128 registers hold. `registers`:
// of one unit.
constexpr uint32_t unroll_of_columns(uint32_t columns, bool integer, uint32_t registers) {
  return (columns > 4 || (columns > 2 && registers > 5) ? 1 : 2) * (integer ? 1 : 2);
}

// Rows that a warp works on at a time: one of the gate and one of the up matrix, or its next two rows.
template <bool kGlu, uint32_t kColumns>
constexpr uint32_t kHeld = kGlu || kColumns > 1 ? 2 : 1;

// Arguments of one launch: up to three matrices of one weight type. Kernels exist for 1, 2, 4 and 8 columns; a launch
// may use fewer columns than its kernel has.
template <uint32_t kColumns>
struct GemvKernelArgs {
  const uint8_t* data[3];
  const float* bias[3];
  float* y[kColumns][3];
  bool accumulate[3];
  // End of each part in the concatenated rows; with kGlu the number of rows of either. Unused parts repeat the last.
  uint32_t end_row[3];
  uint32_t n_cols;
  const float* x[kColumns];
  const float* norm;
  float eps;
  uint32_t entry_bytes;  // shared memory of the format's table, which is before the columns
  uint32_t input_bytes;  // shared memory of one column
  // Always 0. It is a kernel parameter, so the compiler cannot know its value. Reader::read_after combines a word of
  // the current tile with it by AND and adds the result, 0, to the index of the next tile. The addresses of the next
  // loads then depend on loaded data, so those loads cannot be issued before the current tile has arrived.
  uint32_t zero;
  uint32_t n_columns;  // more than kColumns / 2: fewer have a smaller kernel
  Gate activation;     // of a gated product
};

template <uint32_t kColumns>
__device__ bool has_column(const GemvKernelArgs<kColumns>& a, uint32_t c) {
  return c <= kColumns / 2 || c < a.n_columns;
}

// Writes each lane's eight inputs to shared memory, quantised for integer formats.
template <class F>
__device__ void store_inputs(const Eight& v, uint32_t at, uint32_t n_cols, std::byte* input) {
  if constexpr (F::kInteger) {
    quantize<F>(v, at, n_cols, input);
  } else {
    store_floats<F>(v, at, n_cols, input);
  }
}

// Loads columns [c, c + kBatch) into shared memory, all of them at the same time; square[] += their squares.
template <class F, uint32_t kColumns, uint32_t kBatch>
__device__ void take_batch(const GemvKernelArgs<kColumns>& a, std::byte* input, uint32_t c, float (&square)[kBatch]) {
  // A warp stays in the loop while one of its lanes has inputs: the shuffles of quantize() need all lanes.
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

// Loads all columns into shared memory, and writes each warp's sums of squares to `sums`.
template <class F, uint32_t kColumns>
__device__ void take_inputs(const GemvKernelArgs<kColumns>& a, std::byte* input, float (*sums)[kWarps]) {
  constexpr uint32_t kBatch = kColumns < 4 ? kColumns : 4;  // kBatch columns take 32 registers
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

// Factor of a column's outputs: 1 / RMS of its input, from the warps' sums of squares; 1 without a norm.
inline __device__ float norm_scale(const float* norm, const float* sums, uint32_t n_cols, float eps) {
  if (norm == nullptr) return 1.0f;
  float sum = 0.0f;
#pragma unroll
  for (uint32_t i = 0; i < kWarps; ++i) sum += sums[i];
  return rsqrtf(sum / static_cast<float>(n_cols) + eps);
}

// part_of: the part that a row belongs to. first_row: the first row of a part.
template <uint32_t kColumns>
__device__ uint32_t part_of(const GemvKernelArgs<kColumns>& a, uint32_t row) {
  return row < a.end_row[0] ? 0 : row < a.end_row[1] ? 1 : 2;
}
template <uint32_t kColumns>
__device__ uint32_t first_row(const GemvKernelArgs<kColumns>& a, uint32_t part) {
  return part == 0 ? 0 : a.end_row[part - 1];
}

// Values that are added to the output of a row: bias and residual.
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

// One column: sums the lanes' partial sums and stores the output of the row.
template <bool kGlu>
__device__ void store_row(const GemvKernelArgs<1>& a, uint32_t row, float* total, float scale, const Addends& add) {
#pragma unroll
  for (uint32_t m = 0; m < kHeld<kGlu, 1>; ++m) total[m] = __fmul_rn(warp_sum(total[m]), scale);
  if (threadIdx.x % kWarp != 0) return;
  if constexpr (kGlu) {
    if (a.bias[0] != nullptr) total[0] += __ldg(a.bias[0] + row);
    if (a.bias[1] != nullptr) total[1] += __ldg(a.bias[1] + row);
    a.y[0][0][row] = gated(a.activation, total[0], total[1]);
  } else {
    store_output(a, 0, row, total[0], add);
  }
}

// Lanes that hold the same sum after spread_sums: lane l holds sum l / kSpread<kN>.
template <uint32_t kN>
constexpr uint32_t kSpread = kWarp / kN;

// Sums each of v[kN] over the lanes of a warp, in the pairing of warp_sum, and spreads the sums over the lanes as
// kSpread says. Each exchange halves the number of sums that a lane holds.
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

// Several columns: stores the outputs of the current rows. `scale` belongs to the column whose output the lane stores.
template <bool kGlu, uint32_t kColumns>
__device__ void store_rows(const GemvKernelArgs<kColumns>& a, uint32_t row, uint32_t stride, float* total,
                           float scale) {
  constexpr uint32_t kN = 2 * kColumns;
  const uint32_t lane = threadIdx.x % kWarp, held = lane / kSpread<kN> / kColumns, c = lane / kSpread<kN> % kColumns;
  float y = __fmul_rn(spread_sums<kN>(total), scale);
  const bool stores = lane % kSpread<kN> == 0 && has_column(a, c);
  if constexpr (kGlu) {
    if (a.bias[held] != nullptr) y += __ldg(a.bias[held] + row);
    const float up = __shfl_xor_sync(kAllLanes, y, kWarp / 2);  // the gates' sums are in the lower half of the lanes
    if (stores && held == 0) a.y[c][0][row] = gated(a.activation, y, up);
  } else {
    const uint32_t r = row + held * stride;
    if (stores && r < a.end_row[2]) store_output(a, c, r, y, read_addends(a, c, r));
  }
}

// Finishes the current rows: stores their outputs and sets the lanes' partial sums to 0.
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

// A tile: what a warp loads at a time, kUnroll units per lane of each current row.
template <class F, uint32_t kUnroll, uint32_t kRows>
struct Stretch {
  typename F::Regs regs[kRows][kUnroll];
};

// The weight planes of the parts.
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

// Loads the tiles of a warp's rows, one after another.
template <class F, uint32_t kUnroll, bool kGlu, uint32_t kColumns>
struct Reader {
  static constexpr uint32_t kRows = kHeld<kGlu, kColumns>;
  // Whether the lane holds the plane pointers of the current rows' parts. With kGlu gate and up are always parts 0 and
  // 1; where registers are short the pointers are read from the kernel's parameters with each load.
  static constexpr bool kHoldsPlanes = !kGlu && kColumns == 1 && sizeof(typename F::Planes) <= 24;
  const GemvKernelArgs<kColumns>& a;
  const Parts<F>& parts;
  uint32_t row, stride, n_units;
  uint32_t unit = 0;  // index in the row of this lane's next unit
  // Index of that unit in the matrix, for each of the current rows; gate and up share it. 32 bits are enough for 64
  // GiB.
  uint32_t index[kGlu ? 1 : kRows] = {};
  uint32_t part[kRows] = {};                                 // of the current rows
  typename F::Planes planes[kHoldsPlanes ? kRows : 1] = {};  // of those parts

  __device__ Reader(const GemvKernelArgs<kColumns>& args, const Parts<F>& matrices, uint32_t first, uint32_t step)
      : a(args), parts(matrices), row(first), stride(step), n_units(args.n_cols / F::kUnit) {
    begin_row();
  }
  // Whether all rows of a group that begins at row r exist.
  __device__ bool has_rows(uint32_t r) const { return kGlu || kRows == 1 || r + stride < a.end_row[2]; }
  // The first row of the group after the one that begins at row r.
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
  // Loads the next tile as soon as `last` has arrived: the addresses depend on its data (GemvKernelArgs::zero).
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

// Multiplies unit `u` of the first kRows rows with all columns and adds to total[kRows * kColumns], row by row. `at` is
// the unit's input in the first column. A lane for which the row has no unit keeps its sums.
template <class F, uint32_t kRows, uint32_t kColumns, uint32_t kUnroll, uint32_t kAllRows>
__device__ void multiply(const GemvKernelArgs<kColumns>& a, const Entries<F>& entries, const std::byte* at,
                         bool has_unit, const Stretch<F, kUnroll, kAllRows>& now, uint32_t u, float* total) {
  typename F::Words words[kRows];
#pragma unroll
  for (uint32_t m = 0; m < kRows; ++m) words[m] = entries.unpack(now.regs[m][u], threadIdx.x % 8);
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

// Computes: every column's outputs, as GemvArgs says. With kGlu parts 0 and 1 are the gate and the up matrix, which
// have the same number of rows; otherwise the rows of the parts follow one another.
// Shapes: W [n_rows, n_cols], columns [n_cols].
// Launch: at most kBlocks blocks per SM; block b's warp w begins at row w * gridDim.x + b.
// Numerics: integer formats multiply 16-bit activations exactly within a block of 32; f32 sums (see the head comment).
// Traffic: W once; each block reads all columns, from L2.
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
  Addends add;  // of the current row, loaded long before they are needed
  const auto read_add = [&] {
    if (kColumns == 1 && !kGlu && lane == 0) add = read_addends(a, 0, row);
  };
  Stretch<F, kUnroll, kRows> even = {};
  reader.read(even);
  const Entries<F> entries(shared, a.entry_bytes, kThreads);
  wait_for_previous();
  // Not earlier: everything before this kernel is complete when the next kernel starts. Attention relies on that and
  // reads page tables and pages before its own wait.
  start_next();
  if (row < n_rows) read_add();
  std::byte* const inputs = shared + a.entry_bytes;
  take_inputs<F>(a, inputs, sums);
  const uint32_t column = kColumns == 1 ? 0 : lane / kSpread<2 * kColumns> % kColumns;  // whose output the lane stores
  const float scale = norm_scale(a.norm, sums[column], a.n_cols, a.eps);

  const std::byte* const input = unit_at<F>(inputs, lane);
  const std::byte* at = input;  // of the lane's next unit
  uint32_t unit = lane;
  float total[kRows * kColumns] = {};
  // Multiplies a tile. Returns whether there is another one.
  const auto take = [&](const Stretch<F, kUnroll, kRows>& now) {
#pragma unroll
    for (uint32_t u = 0; u < kUnroll; ++u) {
      const bool has_unit = unit + u * kWarp < reader.n_units;
      const std::byte* from = at + u * (F::kPieces * kPieceStride);
      if (reader.has_rows(row)) {
        multiply<F, kRows>(a, entries, from, has_unit, now, u, total);
      } else {
        multiply<F, 1>(a, entries, from, has_unit, now, u, total);
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

// What the kernel's static arrays leave, and what the smallest table of a format leaves for inputs.
inline size_t shared_room() { return device().shared_bytes - 1024; }
inline size_t input_room(uint32_t min_entry_bytes) { return shared_room() - min_entry_bytes; }

using AllColumns = GemvKernelArgs<kMaxColumns>;

// Launches a kernel for columns [first, first + n) of `all`; n is at most the number of columns that the kernel has.
using Launcher = Status (*)(OpContext& cx, const AllColumns& all, uint32_t first, uint32_t n, bool overlap);

template <class F, uint32_t kUnroll, bool kGlu, uint32_t kColumns>
Status launch_columns(OpContext& cx, const AllColumns& all, uint32_t first, uint32_t n, bool overlap) {
  GemvKernelArgs<kColumns> k = {};
  std::copy_n(all.data, 3, k.data);
  std::copy_n(all.bias, 3, k.bias);
  std::copy_n(all.accumulate, 3, k.accumulate);
  std::copy_n(all.end_row, 3, k.end_row);
  k.n_cols = all.n_cols;
  k.norm = all.norm;
  k.eps = all.eps;
  k.activation = all.activation;
  k.n_columns = n;
  std::copy_n(all.x + first, n, k.x);
  for (uint32_t c = 0; c < n; ++c) std::copy_n(all.y[first + c], 3, k.y[c]);
  k.input_bytes = column_bytes(input_shape<F>(), k.n_cols, kUnroll);
  const size_t inputs = size_t{n} * k.input_bytes;
  k.entry_bytes = Entries<F>::bytes(inputs < shared_room() ? shared_room() - inputs : 0);

  const auto kernel = gemv_kernel<F, kUnroll, kGlu, kColumns>;
  const size_t bytes = k.entry_bytes + inputs;
  // Without asking a block has 48 KiB, of which the kernel's static array takes a little. The maximum is requested,
  // because one graph may hold a kernel with several sizes.
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

// The kernel that loads as many units per lane at a time as a row has lanes for, limited by registers and shared
// memory.
template <class F, bool kGlu, uint32_t kColumns>
Launcher launcher_of(uint32_t n_cols) {
  if constexpr (kColumns > 1) {
    return launch_columns<F, unroll_of_columns(kColumns, F::kInteger, F::kRegisters), kGlu, kColumns>;
  } else {
    const uint32_t n_units = n_cols / F::kUnit;
    constexpr uint32_t kMax = 4 / (kGlu ? 2 : 1), kTwo = kMax < 2 ? kMax : 2;
    const auto fits = [&](uint32_t unroll) {
      return column_bytes(input_shape<F>(), n_cols, unroll) <= input_room(Entries<F>::kMinBytes);
    };
    if (n_units <= kWarp || !fits(kTwo)) return launch_columns<F, 1, kGlu, kColumns>;
    if (n_units <= 2 * kWarp || !fits(kMax)) return launch_columns<F, kTwo, kGlu, kColumns>;
    return launch_columns<F, kMax, kGlu, kColumns>;
  }
}

}  // namespace gemv_kernels

// What the host knows of a weight type's GEMV.
struct GemvOfType {
  InputShape input;
  bool integer;
  uint32_t registers;  // of one unit
  uint32_t min_entry_bytes;
  // The launcher for a kernel of 1, 2, 4 or kMaxColumns columns.
  gemv_kernels::Launcher (*find)(bool glu, uint32_t columns, uint32_t n_cols);
};

template <class F, bool kGlu>
gemv_kernels::Launcher find_gemv(uint32_t columns, uint32_t n_cols) {
  return columns == 1   ? gemv_kernels::launcher_of<F, kGlu, 1>(n_cols)
         : columns == 2 ? gemv_kernels::launcher_of<F, kGlu, 2>(n_cols)
         : columns == 4 ? gemv_kernels::launcher_of<F, kGlu, 4>(n_cols)
                        : gemv_kernels::launcher_of<F, kGlu, kMaxColumns>(n_cols);
}

template <class F>
GemvOfType gemv_of_type() {
  return {input_shape<F>(), F::kInteger, F::kRegisters, Entries<F>::kMinBytes,
          [](bool glu, uint32_t columns, uint32_t n_cols) {
            return glu ? find_gemv<F, true>(columns, n_cols) : find_gemv<F, false>(columns, n_cols);
          }};
}

}  // namespace weir::cuda
