// Matrix times vector: y = W x with W in its file's precision, read once at the speed of memory.
//
// Two blocks of 512 threads per multiprocessor stay for the whole matrix; a warp takes every n-th row. The first rows' weights are requested before
// the kernel waits for its predecessor, so that memory is busy while the input is normalised and quantised, which every block does for itself: it is
// some 16 KiB from the second-level cache, less than a barrier across the device would cost.
#include "cuda/gemv.cuh"

#include "cuda/cuda_ops.h"
#include "cuda/device.cuh"
#include "cuda/formats.cuh"

namespace weir::cuda {
namespace {

constexpr uint32_t kThreads = 512;
constexpr uint32_t kWarps = kThreads / kWarp;
constexpr uint32_t kBlocks = 2;  // of a multiprocessor: with one, F16 had 79 % of the copy bandwidth instead of 87

// One launch: up to three matrices of one type.
struct GemvKernelArgs {
  const uint8_t* data[3];
  const float* bias[3];
  float* y[3];
  bool accumulate[3];
  uint32_t end_row[3];  // of the rows numbered through; unused parts repeat the last
  uint32_t n_cols;
  const float* x;
  const float* norm;
  float eps;
};

// Eight inputs, times the norm's weights; `square` += their squares before that. The norm's scale is one number for all of them: it multiplies the
// outputs, so that nothing has to wait for it.
__device__ void read_input(const GemvKernelArgs& a, uint32_t at, float* v, float& square) {
#pragma unroll
  for (uint32_t i = 0; i < 8; i += 4) {
    const float4 x = *reinterpret_cast<const float4*>(a.x + at + i);
    v[i] = x.x, v[i + 1] = x.y, v[i + 2] = x.z, v[i + 3] = x.w;
    if (a.norm == nullptr) continue;
    const float4 w = __ldg(reinterpret_cast<const float4*>(a.norm + at + i));
    square += x.x * x.x + x.y * x.y + x.z * x.z + x.w * x.w;
    v[i] *= w.x, v[i + 1] *= w.y, v[i + 2] *= w.z, v[i + 3] *= w.w;
  }
}

// Quantises the input into shared memory: four neighbouring lanes share a block of 32. An infinity or a NaN makes the scale NaN, as on the CPU.
__device__ Act quantize_input(const GemvKernelArgs& a, std::byte* shared, float& square) {
  const uint32_t n_blocks = a.n_cols / 32;
  auto* hi = reinterpret_cast<int4*>(shared);
  auto* lo = hi + 2 * n_blocks;
  auto* sum = reinterpret_cast<int2*>(lo + 2 * n_blocks);
  auto* scale = reinterpret_cast<float*>(sum + n_blocks);
  for (uint32_t first = 0; first < a.n_cols; first += kThreads * 8) {
    const uint32_t at = first + threadIdx.x * 8;
    float v[8] = {};
    if (at < a.n_cols) read_input(a, at, v, square);
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
    if (at >= a.n_cols) continue;
    const uint32_t block = at / 32, part = at / 8 % 4;
    const uint32_t place = ((part / 2) * n_blocks + block) * 2 + part % 2;
    reinterpret_cast<uint2*>(hi)[place] = make_uint2(high[0], high[1]);
    reinterpret_cast<uint2*>(lo)[place] = make_uint2(low[0], low[1]);
    if (part == 0) {
      sum[block] = make_int2(half_sum, other_sum);
      scale[block] = finite ? most / 32512.0f : __uint_as_float(0x7FC00000u);
    }
  }
  return {hi, lo, scale, sum, n_blocks};
}

template <uint32_t kUnit>
__device__ const float4* store_input(const GemvKernelArgs& a, std::byte* shared, float& square) {
  auto* out = reinterpret_cast<float4*>(shared);
  const uint32_t n_units = a.n_cols / kUnit;
  for (uint32_t at = threadIdx.x * 8; at < a.n_cols; at += kThreads * 8) {
    float v[8];
    read_input(a, at, v, square);
#pragma unroll
    for (uint32_t i = 0; i < 8; i += 4) {
      const uint32_t quad = (at + i) / 4;
      out[quad % (kUnit / 4) * n_units + quad / (kUnit / 4)] = make_float4(v[i], v[i + 1], v[i + 2], v[i + 3]);
    }
  }
  return out;
}

// What the outputs are multiplied by, from each thread's sum of squares; the input in shared memory is ready after it.
__device__ float norm_scale(const GemvKernelArgs& a, float square, float* sums) {
  square = warp_sum(square);
  if (threadIdx.x % kWarp == 0) sums[threadIdx.x / kWarp] = square;
  __syncthreads();
  if (a.norm == nullptr) return 1.0f;
  float sum = 0.0f;
#pragma unroll
  for (uint32_t i = 0; i < kWarps; ++i) sum += sums[i];
  return rsqrtf(sum / static_cast<float>(a.n_cols) + a.eps);
}

// The end of a row: the lanes' sums become its output, and are 0 again.
template <bool kGlu>
__device__ void store_row(const GemvKernelArgs& a, uint32_t row, float* total, float scale) {
#pragma unroll
  for (uint32_t m = 0; m < (kGlu ? 2 : 1); ++m) total[m] = warp_sum(total[m]) * scale;
  if (threadIdx.x % kWarp == 0) {
    if constexpr (kGlu) {
      a.y[0][row] = total[0] / (1.0f + __expf(-total[0])) * total[1];
    } else {
      const uint32_t part = row < a.end_row[0] ? 0 : row < a.end_row[1] ? 1 : 2;
      const uint32_t at = row - (part == 0 ? 0 : a.end_row[part - 1]);
      float y = total[0];
      if (a.bias[part] != nullptr) y += a.bias[part][at];
      if (a.accumulate[part]) y += a.y[part][at];
      a.y[part][at] = y;
    }
  }
#pragma unroll
  for (uint32_t m = 0; m < (kGlu ? 2 : 1); ++m) total[m] = 0.0f;
}

// What one warp reads at a time: kUnroll units a lane of one row, of each of kMatrices matrices.
template <class F, uint32_t kUnroll, uint32_t kMatrices>
struct Stretch {
  typename F::Regs regs[kMatrices][kUnroll];
};

// kGlu: matrices 0 and 1 have the same rows. Else the parts' rows follow one another.
template <class F, uint32_t kUnroll, bool kGlu>
__global__ void __launch_bounds__(kThreads, kBlocks) gemv_kernel(const __grid_constant__ GemvKernelArgs a) {
  constexpr uint32_t kMatrices = kGlu ? 2 : 1;
  extern __shared__ __align__(16) std::byte shared[];
  __shared__ float sums[kWarps];
  const uint32_t lane = threadIdx.x % kWarp, n_units = a.n_cols / F::kUnit;
  const uint32_t n_rows = a.end_row[2], stride = gridDim.x * kWarps;
  const uint32_t n_stretches = (n_units + kWarp * kUnroll - 1) / (kWarp * kUnroll);
  uint32_t row = threadIdx.x / kWarp * gridDim.x + blockIdx.x, stretch = 0;

  const auto load = [&](uint32_t r, uint32_t s, Stretch<F, kUnroll, kMatrices>& out) {
    const uint32_t part = kGlu || r < a.end_row[0] ? 0 : r < a.end_row[1] ? 1 : 2;
    const uint32_t first = part == 0 ? 0 : a.end_row[part - 1];
    const size_t n_all = size_t{a.end_row[part] - first} * n_units;
#pragma unroll
    for (uint32_t m = 0; m < kMatrices; ++m) {
      const typename F::Planes planes = F::planes(a.data[kGlu ? m : part], n_all);
#pragma unroll
      for (uint32_t u = 0; u < kUnroll; ++u) {
        const uint32_t unit = (s * kUnroll + u) * kWarp + lane;
        if (unit < n_units) out.regs[m][u] = F::load(planes, size_t{r - first} * n_units + unit);
      }
    }
  };

  Stretch<F, kUnroll, kMatrices> now;
  if (row < n_rows) load(row, 0, now);
  wait_for_previous();
  // Only now: the next kernel may then rely on everything before this one (attention reads page tables ahead).
  start_next();
  float square = 0.0f;
  const auto input = [&] {
    if constexpr (F::kInteger) {
      return quantize_input(a, shared, square);
    } else {
      return store_input<F::kUnit>(a, shared, square);
    }
  }();
  const float scale = norm_scale(a, square, sums);

  float total[kMatrices] = {};
  while (row < n_rows) {
    const bool last = stretch + 1 == n_stretches;
    const uint32_t next_row = last ? row + stride : row, next_stretch = last ? 0 : stretch + 1;
    Stretch<F, kUnroll, kMatrices> next;
    if (next_row < n_rows) load(next_row, next_stretch, next);
#pragma unroll
    for (uint32_t u = 0; u < kUnroll; ++u) {
      const uint32_t unit = (stretch * kUnroll + u) * kWarp + lane;
      if (unit >= n_units) continue;
#pragma unroll
      for (uint32_t m = 0; m < kMatrices; ++m) {
        if constexpr (F::kInteger) {
          total[m] += F::dot(now.regs[m][u], input, unit, unit % 8);
        } else {
          total[m] += F::dot(now.regs[m][u], input, unit, n_units);
        }
      }
    }
    if (last) store_row<kGlu>(a, row, total, scale);
    now = next;
    row = next_row;
    stretch = next_stretch;
  }
}

template <WeightType T>
size_t shared_bytes(uint32_t n_cols) {
  return Format<T>::kInteger ? act_bytes(n_cols) : size_t{n_cols} * sizeof(float);
}

Status launch_gemv(OpContext& cx, void (*kernel)(GemvKernelArgs), size_t bytes, const GemvKernelArgs& k, bool overlap) {
  if (bytes > 47 * 1024) {  // of the 48 KiB that need no asking the kernel's own array takes a little
    WEIR_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
                  "shared memory of gemv");
  }
  const uint32_t needed = (k.end_row[2] + kWarps - 1) / kWarps, most = device().n_processors * kBlocks;
  const uint32_t blocks = needed < most ? needed : most;
  return launch("gemv", kernel, dim3(blocks), dim3(kThreads), bytes, stream_of(cx), overlap, k);
}

// As many units at once as a row has lanes for, up to what registers hold.
template <WeightType T, bool kGlu>
Status pick_unroll(OpContext& cx, const GemvKernelArgs& k, bool overlap) {
  const uint32_t n_units = k.n_cols / Format<T>::kUnit;
  constexpr uint32_t kMost = (Format<T>::kInteger ? 2 : 4) / (kGlu ? 2 : 1), kTwo = kMost < 2 ? kMost : 2;
  const size_t bytes = shared_bytes<T>(k.n_cols);
  if (n_units <= kWarp) return launch_gemv(cx, gemv_kernel<Format<T>, 1, kGlu>, bytes, k, overlap);
  if (n_units <= 2 * kWarp) return launch_gemv(cx, gemv_kernel<Format<T>, kTwo, kGlu>, bytes, k, overlap);
  return launch_gemv(cx, gemv_kernel<Format<T>, kMost, kGlu>, bytes, k, overlap);
}

Status pick_type(OpContext& cx, WeightType type, bool glu, const GemvKernelArgs& k, bool overlap) {
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

}  // namespace

uint32_t gemv_max_cols(WeightType type) {
  const size_t room = device().shared_bytes - 1024;  // the kernel's own arrays
  const bool integer = type != WeightType::kF32 && type != WeightType::kF16 && type != WeightType::kBF16;
  return static_cast<uint32_t>(room / (integer ? 76 : 128)) * 32;  // bytes of 32 columns: 64 of quants and 12, or f32
}

Status gemv(OpContext& cx, const GemvArgs& a) {
  bool done[3] = {};
  bool first = true;
  for (uint32_t i = 0; i < a.n_parts; ++i) {
    if (done[i]) continue;
    GemvKernelArgs k = {};
    k.n_cols = a.part[i].w.n_cols;
    k.x = a.x;
    k.norm = a.norm;
    k.eps = a.eps;
    uint32_t n = 0, rows = 0;
    for (uint32_t j = i; j < a.n_parts; ++j) {
      if (a.part[j].w.type != a.part[i].w.type || (a.glu && j > 1)) continue;
      done[j] = true;
      rows = a.glu ? a.part[j].w.n_rows : rows + a.part[j].w.n_rows;
      k.data[n] = a.part[j].w.data;
      k.bias[n] = a.part[j].bias;
      k.y[n] = a.part[j].y;
      k.accumulate[n] = a.part[j].accumulate;
      k.end_row[n++] = rows;
    }
    for (; n < 3; ++n) {
      k.data[n] = k.data[n - 1];
      k.end_row[n] = rows;
    }
    WEIR_TRY(pick_type(cx, a.part[i].w.type, a.glu, k, a.overlap || !first));
    first = false;
  }
  return {};
}

}  // namespace weir::cuda
