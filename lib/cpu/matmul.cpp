// embed, matmul and glu_matmul of the CPU backend: checks, the decision between GEMV and GEMM, and what both share. No
// vector code here.
#include "cpu/matmul.h"

#include <algorithm>

#include "cpu/matmul_plan.h"
#include "cpu/simd_targets.h"
#include "hwy/targets.h"

namespace weir::cpu {

const WeightKernels& weight_kernels(WeightType type) {
  using Get = const WeightKernels& (*)();
  static constexpr Get kGet[] = {
#define WEIR_QUANT(Name, text, gguf_id, block_weights, block_bytes) weight_kernels_##Name,
#include "quant/quants.inc"
#undef WEIR_QUANT
  };
  return kGet[static_cast<size_t>(type)]();
}

const char* matmul_target() { return act_kernels().has_gemm ? hwy::TargetName(act_kernels().target) : "plain"; }

uint64_t matmul_scratch_bytes(const OpShapes& shapes) {
  const size_t groups = n_groups(shapes.max_cols);
  const size_t max_tok = std::max<size_t>(shapes.max_tok, 1);
  size_t shared = gemv_shared_bytes(groups, std::min(max_tok, kGemvTokens));
  size_t worker = gemv_worker_bytes();
  if (max_tok > kGemvTokens) {
    shared = std::max(shared, gemm_shared_bytes(groups, max_tok));
    worker = std::max(worker, gemm_worker_bytes(max_tok));
  }
  return uint64_t{shared} + uint64_t{worker} * std::max(shapes.n_threads, 1u);
}

namespace {

Status check_scratch(const OpContext& cx, const char* op, size_t n_cols, size_t n_tok) {
  OpShapes shapes;
  shapes.n_threads = cx.pool->n_threads();
  shapes.max_tok = static_cast<uint32_t>(n_tok);
  shapes.max_cols = static_cast<uint32_t>(n_cols);
  const uint64_t needed = matmul_scratch_bytes(shapes);
  if (needed <= cx.scratch_bytes) return {};
  return fail(WEIR_ERR_INTERNAL, "%s of %zu tokens and %zu columns needs %llu bytes of scratch, got %llu", op, n_tok,
              n_cols, static_cast<unsigned long long>(needed), static_cast<unsigned long long>(cx.scratch_bytes));
}

// Whether the GEMV runs: for few tokens, and where the instruction set has no GEMM.
bool use_gemv(size_t n_tok) { return n_tok <= kGemvTokens || !act_kernels().has_gemm; }

}  // namespace

void run_product(OpContext& cx, const Product& p) { use_gemv(p.n_tok) ? run_gemv(cx, p) : run_gemm(cx, p); }

Status matmul(OpContext& cx, const MatmulArgs& a) {
  if (a.n_tok == 0 || a.n_parts == 0) return {};
  const size_t n_cols = a.part[0].w.n_cols;
  WEIR_TRY(check_scratch(cx, "matmul", n_cols, a.n_tok));
  Product product{a.x, n_cols, a.n_tok, a.n_parts, {}, false, nullptr};
  for (uint32_t i = 0; i < a.n_parts; ++i)
    product.part[i] = {a.part[i].w, a.part[i].bias, a.part[i].y, a.part[i].accumulate};
  run_product(cx, product);
  return {};
}

Status glu_matmul(OpContext& cx, const GluMatmulArgs& a) {
  if (a.n_tok == 0) return {};
  WEIR_TRY(check_scratch(cx, "glu_matmul", a.gate.n_cols, a.n_tok));
  const GluFn activate = act_kernels().glu[static_cast<size_t>(a.activation)];
  Product product{a.x, a.gate.n_cols, a.n_tok, 2, {}, true, activate};
  product.part[0] = {a.gate, a.gate_bias, a.y, false};
  product.part[1] = {a.up, a.up_bias, a.y, false};
  run_product(cx, product);
  return {};
}

// Rows are decoded by the plain decoder: the few rows of a step cost nothing next to the layers that follow.
Status embed(OpContext& cx, const EmbedArgs& a) {
  const WeightTypeInfo& info = weight_type_info(a.table.type);
  cx.pool->parallel_for(a.n_tok, [&](size_t t, size_t) {
    float* x = a.x + t * a.table.n_cols;
    info.decode(a.table.data + static_cast<size_t>(a.tokens[t]) * a.table.row_bytes, x, a.table.n_cols);
    for (size_t i = 0; i < a.table.n_cols; ++i) x[i] *= a.scale;
  });
  return {};
}

}  // namespace weir::cpu
