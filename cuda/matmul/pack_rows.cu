// Packs rows of f32 into f16 with one scale per row, as inputs of gemm_f16; the gated activation of an MLP, packed or
// not.
#include <limits>

#include "cuda/matmul/gemm.cuh"

namespace weir::cuda {
namespace {

constexpr uint32_t kThreads = 256;

// A source's first(row, n) is where a row of n float4 begins.
struct Plain {
  const float* x;
  __device__ static size_t first(uint32_t row, uint32_t n) { return size_t{row} * n; }
  __device__ float4 operator()(size_t i) const { return reinterpret_cast<const float4*>(x)[i]; }
};

struct Gathered {
  const float* x;
  const uint32_t* row_of;
  __device__ size_t first(uint32_t row, uint32_t n) const { return size_t{row_of[row]} * n; }
  __device__ float4 operator()(size_t i) const { return reinterpret_cast<const float4*>(x)[i]; }
};

struct GateMul {
  Gate activation;
  const float* gate;
  const float* up;
  __device__ float one(float g, float u) const {
    if (activation == Gate::kRelu) return (g < 0.0f ? 0.0f : g) * u;
    clamp_inputs(activation, g, u);
    return g / (1.0f + expf(-gate_logit(activation, g))) * u;
  }
  __device__ static size_t first(uint32_t row, uint32_t n) { return size_t{row} * n; }
  __device__ float4 operator()(size_t i) const {
    const float4 g = reinterpret_cast<const float4*>(gate)[i], u = reinterpret_cast<const float4*>(up)[i];
    return make_float4(one(g.x, u.x), one(g.y, u.y), one(g.z, u.z), one(g.w, u.w));
  }
};

// |x| as an integer with the order of the values, infinities and NaN on top.
__device__ inline uint32_t magnitude(float x) { return __float_as_uint(x) & 0x7FFFFFFFu; }
constexpr uint32_t kInfinity = 0x7F800000u;

// Computes: scale[row] = max|x|, out = x / scale.
// Launch: one block per row; the row is read twice, the second time mostly from cache.
// Numerics: exact maximum, one division, one rounding to nearest.
// Traffic: reads the row and writes half as many bytes.
template <class Source>
__global__ void __launch_bounds__(kThreads)
    pack_rows_kernel(Source source, __half* out, float* scale, uint32_t n_cols) {
  __shared__ uint32_t warp_high[kThreads / kWarp];
  const size_t first = source.first(blockIdx.x, n_cols / 4), to = size_t{blockIdx.x} * (n_cols / 4);
  uint32_t high = 0;
  for (uint32_t i = threadIdx.x; i < n_cols / 4; i += kThreads) {
    const float4 v = source(first + i);
    high = max(high, max(max(magnitude(v.x), magnitude(v.y)), max(magnitude(v.z), magnitude(v.w))));
  }
#pragma unroll
  for (uint32_t i = kWarp / 2; i > 0; i /= 2) high = max(high, __shfl_xor_sync(kAllLanes, high, i));
  if (threadIdx.x % kWarp == 0) warp_high[threadIdx.x / kWarp] = high;
  __syncthreads();
#pragma unroll
  for (uint32_t i = 0; i < kThreads / kWarp; ++i) high = max(high, warp_high[i]);

  const bool is_finite = high < kInfinity;
  const float row_scale = is_finite ? __uint_as_float(high) : __int_as_float(0x7FFFFFFF);
  if (threadIdx.x == 0) scale[blockIdx.x] = row_scale;
  // Without a scale to divide by, out is zeros; the scale itself (0 or NaN) makes the outputs of the GEMM 0 or NaN.
  const bool is_plain = is_finite && high > 0;
  for (uint32_t i = threadIdx.x; i < n_cols / 4; i += kThreads) {
    __half2 h[2] = {};
    if (is_plain) {
      const float4 v = source(first + i);
      h[0] = __floats2half2_rn(v.x / row_scale, v.y / row_scale);
      h[1] = __floats2half2_rn(v.z / row_scale, v.w / row_scale);
    }
    reinterpret_cast<uint2*>(out)[to + i] = *reinterpret_cast<const uint2*>(h);
  }
}

// Computes: y = activation(gate) * up.
// Launch: one thread per four elements.
__global__ void __launch_bounds__(kThreads) gate_mul_kernel(GateMul source, float* y, size_t n) {
  const size_t i = size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < n) reinterpret_cast<float4*>(y)[i] = source(i);
}

}  // namespace

Status pack_rows_f16(OpContext& cx, const float* x, __half* out, float* scale, uint32_t n_tok, uint32_t n_cols,
                     const uint32_t* row_of) {
  if (row_of != nullptr) {
    return launch("pack_rows_f16", pack_rows_kernel<Gathered>, n_tok, kThreads, 0, stream_of(cx), false,
                  Gathered{x, row_of}, out, scale, n_cols);
  }
  return launch("pack_rows_f16", pack_rows_kernel<Plain>, n_tok, kThreads, 0, stream_of(cx), false, Plain{x}, out,
                scale, n_cols);
}

Status gate_mul_pack_f16(OpContext& cx, Gate activation, const float* gate, const float* up, __half* out, float* scale,
                         uint32_t n_tok, uint32_t n_cols) {
  return launch("gate_mul_pack_f16", pack_rows_kernel<GateMul>, n_tok, kThreads, 0, stream_of(cx), false,
                GateMul{activation, gate, up}, out, scale, n_cols);
}

Status gate_mul(OpContext& cx, Gate activation, const float* gate, const float* up, float* y, uint32_t n_tok,
                uint32_t n_cols) {
  const size_t n = size_t{n_tok} * n_cols / 4;
  const auto blocks = static_cast<uint32_t>((n + kThreads - 1) / kThreads);
  return launch("gate_mul", gate_mul_kernel, blocks, kThreads, 0, stream_of(cx), false, GateMul{activation, gate, up},
                y, n);
}

}  // namespace weir::cuda
