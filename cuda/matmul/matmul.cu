// The matrix ops. Up to eight tokens go through the GEMV, each with the bits that it has alone. More tokens go through
// the GEMM on tensor cores: slices of the matrix, small enough to stay in L2, are decoded to f16 and multiplied with
// the activations in f16, which have one scale per row.
#include <algorithm>

#include "core/memory.h"
#include "cuda/matmul/gemm.cuh"
#include "cuda/matmul/gemv.cuh"
#include "cuda/matmul/store_units.cuh"
#include "cuda/ops.h"
#include "cuda/quant/formats.cuh"
#include "device/kernels/gemv.h"
#include "ops/glu_matmul.h"
#include "ops/matmul.h"
#include "ops/table.h"

namespace weir::cuda {
namespace {

constexpr uint32_t kThreads = 256;
// Decoded weights at a time: about half of an H200's L2 cache, and enough rows of 4096 columns to fill its SMs.
constexpr uint64_t kSliceBytes = 32u << 20;
constexpr uint64_t kSumsPerToken = 4096;  // floats of split-K partial sums

// Decodes a slice, one unit per thread; out [n_rows, n_cols] f16.
template <WeightType T>
__global__ void __launch_bounds__(kThreads)
    decode_kernel(const uint8_t* data, size_t n_all, size_t first_unit, size_t n_units, __half* out) {
  using F = Format<T>;
  __shared__ UnitStore<F::kUnit, kThreads> shared;
  const size_t i = size_t{blockIdx.x} * kThreads + threadIdx.x, of_warp = i - threadIdx.x % kWarp;
  if (of_warp >= n_units) return;
  float v[F::kUnit] = {};
  if (i < n_units) {
    const typename F::Planes planes = F::planes(data, n_all);
    F::decode(F::load(F::at(planes, first_unit + i)), static_cast<uint32_t>((first_unit + i) % 8), v);
  }
  shared.store(v, static_cast<uint32_t>(min(n_units - of_warp, size_t{kWarp})), out + of_warp * F::kUnit);
}

Status decode_rows(OpContext& cx, const Weight& w, uint32_t first_row, uint32_t n_rows, __half* out) {
  switch (w.type) {
#define WEIR_QUANT(Name, text, gguf_id, block_weights, block_bytes)                                                    \
  case WeightType::k##Name: {                                                                                          \
    const size_t per_row = w.n_cols / Format<WeightType::k##Name>::kUnit, n = n_rows * per_row;                        \
    return launch("decode_rows", decode_kernel<WeightType::k##Name>,                                                   \
                  dim3(static_cast<uint32_t>((n + kThreads - 1) / kThreads)), dim3(kThreads), 0, stream_of(cx), false, \
                  w.data, w.n_rows * per_row, first_row * per_row, n, out);                                            \
  }
#include "quant/quants.inc"
#undef WEIR_QUANT
  }
  return fail(WEIR_ERR_INTERNAL, "decode_rows: weight type %d", static_cast<int>(w.type));
}

// The parts of the scratch memory, in order.
struct Scratch {
  __half* weights;  // kSliceBytes
  __half* x;        // [n_tok, n_cols]
  float* scale;     // [n_tok]
  float* up;        // [n_tok, d_ff] of the gated MLP
  float* partial;   // [n_tok, kSumsPerToken]
  uint64_t bytes;
};

Scratch lay_out(std::byte* base, uint64_t n_tok, uint64_t n_cols) {
  Scratch s = {};
  uint64_t at = 0;
  const auto take = [&](uint64_t bytes) {
    std::byte* p = base + at;
    at = align_up(at + bytes, 256);
    return p;
  };
  s.weights = reinterpret_cast<__half*>(take(kSliceBytes));
  s.x = reinterpret_cast<__half*>(take(n_tok * n_cols * sizeof(__half)));
  s.scale = reinterpret_cast<float*>(take(n_tok * sizeof(float)));
  s.up = reinterpret_cast<float*>(take(n_tok * n_cols * sizeof(float)));
  s.partial = reinterpret_cast<float*>(take(n_tok * kSumsPerToken * sizeof(float)));
  s.bytes = at;
  return s;
}

// y [n_tok, n_rows] (+)= the packed rows times a matrix, slice by slice.
Status multiply(OpContext& cx, const Scratch& s, const MatmulPart& part, uint32_t n_tok) {
  const Weight& w = part.w;
  const uint64_t row_bytes = uint64_t{w.n_cols} * sizeof(__half);
  const auto slice = static_cast<uint32_t>(std::max<uint64_t>(8, kSliceBytes / row_bytes / 128 * 128));
  for (uint32_t row = 0; row < w.n_rows; row += slice) {
    const uint32_t n = std::min(slice, w.n_rows - row);
    WEIR_TRY(decode_rows(cx, w, row, n, s.weights));
    GemmArgs g = {};
    g.c = part.y + row;
    g.x = s.x;
    g.scale_x = s.scale;
    g.w = s.weights;
    g.bias = part.bias != nullptr ? part.bias + row : nullptr;
    g.n_tok = n_tok;
    g.n_rows = n;
    g.n_cols = w.n_cols;
    g.ldc = w.n_rows;
    g.accumulate = part.accumulate;
    g.partial = s.partial;
    g.n_partial = n_tok * kSumsPerToken;
    WEIR_TRY(gemm_f16(cx, g));
  }
  return {};
}

bool fits_gemv(const Weight& w, uint32_t n_tok) { return n_tok <= kMaxColumns && w.n_cols <= gemv_max_cols(w.type); }

// The GEMM stores eight rows at once. Matrices of other numbers of rows take as many tokens at once as a GEMV does.
// They are the gates of a few heads. A large one, such as Mamba-2's first matrix with an odd number of heads, is slow.
bool takes_few(const Weight& w) { return w.n_rows % 8 != 0 && fits_gemv(w, 1); }

// `by_gemv`: whether the op goes through the GEMV or the GEMM.
Status check(const OpContext& cx, const Weight& w, uint32_t n_tok, bool by_gemv) {
  if (w.n_cols % 32 != 0) return fail(WEIR_ERR_UNSUPPORTED, "matmul: %u columns, not a multiple of 32", w.n_cols);
  if (by_gemv) return {};
  if (n_tok == 1) {
    return fail(WEIR_ERR_UNSUPPORTED, "matmul: %u columns, at most %u fit into the device's shared memory", w.n_cols,
                gemv_max_cols(w.type));
  }
  if (lay_out(nullptr, n_tok, w.n_cols).bytes > cx.scratch_bytes)
    return fail(WEIR_ERR_INTERNAL, "matmul: %u tokens are more than the scratch memory was made for", n_tok);
  return {};
}

// Multiplies g's parts with n_tok rows of x [n_tok, n_cols], of which g.x is the first; y [n_tok, n_rows].
Status multiply_few(OpContext& cx, GemvArgs& g, uint32_t n_tok) {
  GemvColumn more[kMaxColumns - 1] = {};
  for (size_t t = 1; t < n_tok; ++t) {
    GemvColumn& column = more[t - 1];
    column.x = g.x + t * g.part[0].w.n_cols;
    for (uint32_t i = 0; i < g.n_parts; ++i) {
      if (g.part[i].y != nullptr) column.y[i] = g.part[i].y + t * g.part[i].w.n_rows;
    }
  }
  g.more = more;
  g.n_more = n_tok - 1;  // 0 tokens wrap around, and gemv refuses the number
  return gemv(cx, g);
}

Status multiply_by_few(OpContext& cx, const float* x, const MatmulPart& part, uint32_t n_tok) {
  for (uint32_t first = 0; first < n_tok; first += kMaxColumns) {
    GemvArgs g;
    g.part[0] = part;
    g.part[0].y += size_t{first} * part.w.n_rows;
    g.n_parts = 1;
    g.x = x + size_t{first} * part.w.n_cols;
    WEIR_TRY(multiply_few(cx, g, std::min(kMaxColumns, n_tok - first)));
  }
  return {};
}

Status check_rows(const Weight& w) {
  if (w.n_rows % 8 == 0 || takes_few(w)) return {};
  return fail(WEIR_ERR_UNSUPPORTED, "matmul: %u rows of %u columns; a multiple of 8 rows is needed", w.n_rows,
              w.n_cols);
}

}  // namespace

uint64_t matmul_scratch_bytes(const OpShapes& shapes) {
  return shapes.max_tok > 1 ? lay_out(nullptr, shapes.max_tok, shapes.max_cols).bytes : 0;
}

Status matmul(OpContext& cx, const MatmulArgs& a) {
  bool by_gemv = true;  // all parts or none, as the GEMM's parts share the packed input
  for (uint32_t i = 0; i < a.n_parts; ++i) by_gemv = by_gemv && fits_gemv(a.part[i].w, a.n_tok);
  for (uint32_t i = 0; i < a.n_parts; ++i) WEIR_TRY(check(cx, a.part[i].w, a.n_tok, by_gemv));
  if (by_gemv) {
    GemvArgs g;
    for (uint32_t i = 0; i < a.n_parts; ++i) g.part[i] = a.part[i];
    g.n_parts = a.n_parts;
    g.x = a.x;
    return multiply_few(cx, g, a.n_tok);
  }
  for (uint32_t i = 0; i < a.n_parts; ++i) WEIR_TRY(check_rows(a.part[i].w));
  const uint32_t n_cols = a.part[0].w.n_cols;
  const Scratch s = lay_out(cx.scratch, a.n_tok, n_cols);
  WEIR_TRY(pack_rows_f16(cx, a.x, s.x, s.scale, a.n_tok, n_cols));
  for (uint32_t i = 0; i < a.n_parts; ++i) {
    const MatmulPart& part = a.part[i];
    WEIR_TRY(takes_few(part.w) ? multiply_by_few(cx, a.x, part, a.n_tok) : multiply(cx, s, part, a.n_tok));
  }
  return {};
}

Status glu_matmul(OpContext& cx, const GluMatmulArgs& a) {
  const bool one_type = a.gate.type == a.up.type;
  if (a.n_tok == 1 && !one_type) return fail(WEIR_ERR_UNSUPPORTED, "glu_matmul: gate and up matrices of two types");
  const bool by_gemv = one_type && fits_gemv(a.gate, a.n_tok);
  WEIR_TRY(check(cx, a.gate, a.n_tok, by_gemv));
  WEIR_TRY(check(cx, a.up, a.n_tok, by_gemv));
  if (by_gemv) {
    GemvArgs g;
    g.part[0] = {a.gate, a.gate_bias, a.y, false};
    g.part[1] = {a.up, a.up_bias, nullptr, false};
    g.n_parts = 2;
    g.glu = true;
    g.activation = a.activation;
    g.x = a.x;
    return multiply_few(cx, g, a.n_tok);
  }
  if (a.gate.n_rows % 8 != 0)
    return fail(WEIR_ERR_UNSUPPORTED, "glu_matmul: %u rows, not a multiple of 8", a.gate.n_rows);
  // The scratch is sized for the longest matmul input of the session, which is at least d_ff, so d_ff outputs fit too.
  const Scratch s = lay_out(cx.scratch, a.n_tok, std::max(a.gate.n_cols, a.gate.n_rows));
  if (s.bytes > cx.scratch_bytes) return fail(WEIR_ERR_INTERNAL, "glu_matmul: the scratch memory is too small");
  WEIR_TRY(pack_rows_f16(cx, a.x, s.x, s.scale, a.n_tok, a.gate.n_cols));
  WEIR_TRY(multiply(cx, s, {a.gate, a.gate_bias, a.y, false}, a.n_tok));
  WEIR_TRY(multiply(cx, s, {a.up, a.up_bias, s.up, false}, a.n_tok));
  return gate_mul(cx, a.activation, a.y, s.up, a.y, a.n_tok, a.gate.n_rows);
}

}  // namespace weir::cuda
