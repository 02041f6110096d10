// Mixture of experts over the rows of a prompt: the device sorts what the tokens chose by expert, and a GEMM runs over
// the rows of each expert: experts_gemm.cu, or with many rows gemm.cu, over weights that are decoded before, some
// experts at a time. The host does not know how many rows an expert has: it launches tiles for the most that it can
// have, and those beyond its rows end at once. Weights of experts that nobody chose are not read.
#include <algorithm>

#include "core/memory.h"
#include "cuda/matmul/experts.cuh"
#include "cuda/matmul/experts_gemm.cuh"
#include "cuda/matmul/gemm.cuh"
#include "cuda/matmul/store_units.cuh"
#include "cuda/ops.h"
#include "cuda/quant/formats.cuh"
#include "ops/experts.h"
#include "ops/glu_matmul.h"
#include "ops/matmul.h"
#include "ops/table.h"

namespace weir::cuda {
namespace {

constexpr uint32_t kThreads = 256;
constexpr uint64_t kSliceBytes = 32u << 20;  // of decoded weights at a time, as in matmul.cu

struct Scratch {
  Routing routing;
  uint32_t* begin;      // [n_experts + 1] where each expert's rows begin
  uint32_t* row_of;     // [n_tok * n_used] row of what token t chose as i, at t * n_used + i
  uint32_t* token;      // [n_tok * n_used] the token of a row
  __half* weights;      // kSliceBytes
  __half* x;            // [rows, d_model]
  float* scale;         // [rows]
  float *gate, *up;     // [rows, d_ff]
  __half* inner;        // [rows, d_ff]
  float* y;             // [rows, d_model]
  float* shared_inner;  // [n_tok, shared_ff]
  uint64_t bytes;       // what follows is the scratch memory of matmul
};

// Elements of a slice that holds at least eight rows of any of the matrices.
uint64_t slice_elements(const OpShapes& s) {
  return std::max<uint64_t>(kSliceBytes / sizeof(__half), uint64_t{8} * std::max(s.d_model, s.expert_ff));
}

Scratch lay_out(std::byte* base, const OpShapes& shapes) {
  Scratch s = {};
  uint64_t at = 0;
  const auto take = [&](auto*& out, uint64_t n) {
    out = reinterpret_cast<std::remove_reference_t<decltype(out)>>(base + at);
    at = align_up(at + n * sizeof(*out), 256);
  };
  const uint64_t n_tok = shapes.max_tok, rows = n_tok * shapes.n_experts_used;
  s.routing.n_logits = shapes.n_experts + (shapes.shared_ff != 0 ? 1 : 0);  // at most
  take(s.routing.logits, n_tok * s.routing.n_logits);
  take(s.routing.ids, rows);
  take(s.routing.weights, rows);
  take(s.begin, shapes.n_experts + uint64_t{1});
  take(s.row_of, rows);
  take(s.token, rows);
  take(s.weights, slice_elements(shapes));
  take(s.x, rows * shapes.d_model);
  take(s.scale, rows);
  take(s.gate, rows * shapes.expert_ff);
  take(s.up, rows * shapes.expert_ff);
  take(s.inner, rows * shapes.expert_ff);
  take(s.y, rows * shapes.d_model);
  take(s.shared_inner, n_tok * shapes.shared_ff);
  s.bytes = at;
  return s;
}

// Computes: where each expert's rows begin, and which token each row is of, in the order of the tokens.
// Launch: one block per expert. A thread counts in a stretch of the choices, and then writes those of its stretch.
__global__ void __launch_bounds__(kThreads)
    group_kernel(const uint32_t* ids, uint32_t n, uint32_t n_used, uint32_t* begin, uint32_t* row_of, uint32_t* token) {
  __shared__ uint32_t mine[kThreads];
  __shared__ uint32_t before;
  const uint32_t expert = blockIdx.x, per_thread = (n + kThreads - 1) / kThreads;
  const uint32_t first = min(threadIdx.x * per_thread, n), end = min(first + per_thread, n);
  if (threadIdx.x == 0) before = 0;
  __syncthreads();
  uint32_t less = 0, equal = 0;
  for (uint32_t i = first; i < end; ++i) {
    less += ids[i] < expert ? 1u : 0u;
    equal += ids[i] == expert ? 1u : 0u;
  }
  mine[threadIdx.x] = equal;
  atomicAdd(&before, less);
  __syncthreads();
  uint32_t row = before;
  for (uint32_t t = 0; t < threadIdx.x; ++t) row += mine[t];
  if (threadIdx.x == 0) {
    begin[expert] = before;
    if (expert == 0) begin[gridDim.x] = n;
  }
  for (uint32_t i = first; i < end; ++i) {
    if (ids[i] != expert) continue;
    row_of[i] = row;
    token[row++] = i / n_used;
  }
}

// Decodes rows [first_row, first_row + n_rows) of each expert's matrix from first_expert on, blockIdx.y counting the
// experts; out [experts, n_rows, n_cols] f16.
struct DecodeArgs {
  const uint8_t* data;
  const uint32_t* begin;
  uint32_t first_expert, first_row, n_rows;  // of the slice
  uint32_t rows_of_expert, units_of_row;
  size_t n_units;  // of the stack
  __half* out;
};

template <WeightType T>
__global__ void __launch_bounds__(kThreads) decode_experts_kernel(const DecodeArgs a) {
  using F = Format<T>;
  const uint32_t expert = a.first_expert + blockIdx.y;
  __shared__ UnitStore<F::kUnit, kThreads> shared;
  const size_t n = size_t{a.n_rows} * a.units_of_row, i = size_t{blockIdx.x} * kThreads + threadIdx.x;
  const size_t of_warp = i - threadIdx.x % kWarp;
  if (of_warp >= n || a.begin[expert] == a.begin[expert + 1]) return;
  float v[F::kUnit] = {};
  if (i < n) {
    const size_t unit = (size_t{expert} * a.rows_of_expert + a.first_row) * a.units_of_row + i;
    F::decode(F::load(F::at(F::planes(a.data, a.n_units), unit)), static_cast<uint32_t>(unit % 8), v);
  }
  shared.store(v, static_cast<uint32_t>(min(n - of_warp, size_t{kWarp})),
               a.out + (blockIdx.y * n + of_warp) * F::kUnit);
}

Status decode(OpContext& cx, WeightType type, DecodeArgs a, uint32_t n_cols, uint32_t n_experts, uint32_t n_all_rows) {
  switch (type) {
#define WEIR_QUANT(Name, text, gguf_id, block_weights, block_bytes)                                      \
  case WeightType::k##Name: {                                                                            \
    a.units_of_row = n_cols / Format<WeightType::k##Name>::kUnit;                                        \
    a.n_units = size_t{n_all_rows} * a.units_of_row;                                                     \
    const size_t n = size_t{a.n_rows} * a.units_of_row;                                                  \
    const dim3 grid(static_cast<uint32_t>((n + kThreads - 1) / kThreads), n_experts);                    \
    return launch("decode_experts", decode_experts_kernel<WeightType::k##Name>, grid, dim3(kThreads), 0, \
                  stream_of(cx), false, a);                                                              \
  }
#include "quant/quants.inc"
#undef WEIR_QUANT
  }
  return fail(WEIR_ERR_INTERNAL, "experts: weight type %d", static_cast<int>(type));
}

// y [rows, rows of an expert] = the packed rows x [rows, n_cols] times the matrices of their experts.
Status multiply(OpContext& cx, const ExpertsArgs& a, const Scratch& s, const ExpertStack& stack, const __half* x,
                float* y) {
  const uint32_t all = a.router.n_experts, n_rows = stack.w.n_rows / all, n_cols = stack.w.n_cols;
  const uint32_t usual_tok = (a.n_tok * a.router.n_used + all - 1) / all;
  if (has_experts_gemm(stack.w.type, usual_tok)) {
    const ExpertsGemmArgs g = {.c = y,
                               .x = x,
                               .scale_x = s.scale,
                               .data = stack.w.data,
                               .bias = stack.bias,
                               .begin = s.begin,
                               .n_tok = a.n_tok,
                               .n_experts = all,
                               .n_rows = n_rows,
                               .n_cols = n_cols};
    return experts_gemm(cx, stack.w.type, g);
  }
  const uint64_t row_bytes = uint64_t{n_cols} * sizeof(__half);
  const auto most = static_cast<uint32_t>(std::max<uint64_t>(8, kSliceBytes / row_bytes / 8 * 8));
  const uint32_t slice_rows = std::min(n_rows, most), slice_experts = std::max(1u, most / n_rows);
  for (uint32_t expert = 0; expert < all; expert += slice_experts) {
    const uint32_t n_experts = std::min(slice_experts, all - expert);
    for (uint32_t row = 0; row < n_rows; row += slice_rows) {
      const uint32_t n = std::min(slice_rows, n_rows - row);
      DecodeArgs d = {.data = stack.w.data,
                      .begin = s.begin,
                      .first_expert = expert,
                      .first_row = row,
                      .n_rows = n,
                      .rows_of_expert = n_rows,
                      .units_of_row = 0,
                      .n_units = 0,
                      .out = s.weights};
      WEIR_TRY(decode(cx, stack.w.type, d, n_cols, n_experts, stack.w.n_rows));
      GemmGroups g = {};
      g.gemm.c = y + row;
      g.gemm.x = x;
      g.gemm.scale_x = s.scale;
      g.gemm.w = s.weights;
      g.gemm.bias = stack.bias != nullptr ? stack.bias + row : nullptr;
      g.gemm.n_tok = a.n_tok;
      g.gemm.n_rows = n;
      g.gemm.n_cols = n_cols;
      g.gemm.ldc = n_rows;
      g.begin = s.begin;
      g.first = expert;
      g.bias_stride = n_rows;
      g.usual_tok = usual_tok;
      WEIR_TRY(gemm_f16_groups(cx, g, n_experts));
    }
  }
  return {};
}

// Computes: y[tok] += sum over what the token chose, ascending, of weight * rows[row_of].
// Launch: one block per token, a thread for every fourth element.
__global__ void __launch_bounds__(kThreads) combine_kernel(float* y, const float* rows, const uint32_t* row_of,
                                                           const float* weights, uint32_t n_used, uint32_t d_model) {
  const size_t first = size_t{blockIdx.x} * n_used;
  auto* to = reinterpret_cast<float4*>(y + size_t{blockIdx.x} * d_model);
  for (uint32_t i = threadIdx.x; i < d_model / 4; i += kThreads) {
    float4 sum = to[i];
    for (uint32_t k = 0; k < n_used; ++k) {
      const float w = weights[first + k];
      const float4 v = reinterpret_cast<const float4*>(rows + size_t{row_of[first + k]} * d_model)[i];
      sum.x = fmaf(w, v.x, sum.x), sum.y = fmaf(w, v.y, sum.y);
      sum.z = fmaf(w, v.z, sum.z), sum.w = fmaf(w, v.w, sum.w);
    }
    to[i] = sum;
  }
}

// After the routed experts, so that their x is still what it was: x and y are different rows.
Status run_shared(const OpContext& cx, const ExpertsArgs& a, const Scratch& s) {
  OpContext inner = cx;
  inner.scratch += s.bytes;
  inner.scratch_bytes -= s.bytes;
  WEIR_TRY(glu_matmul(inner, {s.shared_inner, a.shared_gate, a.shared_up, a.x, a.n_tok, a.activation}));
  if (a.shared_router != nullptr)
    WEIR_TRY(scale_by_gate(inner, s.shared_inner, s.routing, a.router.n_experts, a.n_tok, a.shared_ff(), false));
  return matmul(inner, {{{a.shared_down, nullptr, a.y, true}, {}, {}}, 1, s.shared_inner, a.n_tok});
}

}  // namespace

uint64_t experts_prompt_bytes(const OpShapes& shapes) {
  if (shapes.max_tok <= 1) return 0;
  return lay_out(nullptr, shapes).bytes + (shapes.shared_ff != 0 ? matmul_scratch_bytes(shapes) : 0);
}

Status experts_prompt(OpContext& cx, const ExpertsArgs& a) {
  const Router& r = a.router;
  const uint32_t d_model = a.d_model(), d_ff = a.d_ff(), n = a.n_tok * r.n_used;
  OpShapes shapes;
  shapes.max_tok = a.n_tok;
  shapes.d_model = d_model;
  shapes.n_experts = r.n_experts;
  shapes.n_experts_used = r.n_used;
  shapes.expert_ff = d_ff;
  shapes.shared_ff = a.shared_ff();
  const Scratch s = lay_out(cx.scratch, shapes);
  WEIR_TRY(route_rows(cx, route_args(a, s.routing)));
  WEIR_TRY(launch("group", group_kernel, dim3(r.n_experts), dim3(kThreads), 0, stream_of(cx), false, s.routing.ids, n,
                  r.n_used, s.begin, s.row_of, s.token));
  WEIR_TRY(pack_rows_f16(cx, a.x, s.x, s.scale, n, d_model, s.token));
  WEIR_TRY(multiply(cx, a, s, a.gate, s.x, s.gate));
  const bool has_gate = a.gate.w.data != a.up.w.data;
  if (has_gate) WEIR_TRY(multiply(cx, a, s, a.up, s.x, s.up));
  WEIR_TRY(gate_mul_pack_f16(cx, a.activation, s.gate, has_gate ? s.up : s.gate, s.inner, s.scale, n, d_ff));
  WEIR_TRY(multiply(cx, a, s, a.down, s.inner, s.y));
  WEIR_TRY(launch("combine", combine_kernel, dim3(a.n_tok), dim3(kThreads), 0, stream_of(cx), false, a.y, s.y, s.row_of,
                  s.routing.weights, r.n_used, d_model));
  return a.shared_ff() != 0 ? run_shared(cx, a, s) : Status();
}

}  // namespace weir::cuda
