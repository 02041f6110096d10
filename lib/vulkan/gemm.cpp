#include "vulkan/gemm.h"

#include <algorithm>

#include "vulkan/ops_sizes.h"

namespace weir::vulkan {
namespace {

// What is multiplied, and what becomes of the product.
struct Product {
  MatmulPart part;
  const float* x;
  const float* gates;
  uint32_t n_tok;
  uint32_t result;  // kGemm...
  Gate activation;
};

// Specialisation: tiles of 16, 32 or 64 tokens.
uint32_t width_of(uint32_t n_tok) { return n_tok <= kGemmTokens ? 2 : n_tok <= 2 * kGemmTokens ? 4 : 8; }

Status multiply(const Product& p) {
  const Weight& w = p.part.w;
  const uint32_t width = width_of(p.n_tok), tokens = kGemmTokens * width / 2;
  Touches t;
  const GemmPush push = {t.writes(p.part.y, float_bytes(uint64_t{p.n_tok} * w.n_rows)),
                         t.reads(p.x, float_bytes(uint64_t{p.n_tok} * w.n_cols)),
                         t.reads(w.data, weight_bytes(w)),
                         t.reads(p.part.bias, float_bytes(w.n_rows)),
                         t.reads(p.gates, float_bytes(p.n_tok)),
                         blocks_of(w),
                         row_blocks_of(w),
                         w.n_rows,
                         p.n_tok,
                         p.result,
                         static_cast<uint>(p.activation)};
  const uint32_t across = (p.n_tok + tokens - 1) / tokens, down = (w.n_rows + kGemmRows - 1) / kGemmRows;
  return context().dispatch(Kernel::kGemm, w.type, width, push, t, {across, std::min(down, kMostGroups)});
}

}  // namespace

Status gemm(const MatmulPart& part, const float* x, const float* gates, uint32_t n_tok) {
  return multiply({part, x, gates, n_tok, part.accumulate ? kGemmAdd : kGemmStore, Gate::kSilu});
}

// The up matrix first: its product waits in y for the gate.
Status gemm_glu(const GluMatmulArgs& a) {
  WEIR_TRY(gemm({a.up, a.up_bias, a.y, false}, a.x, nullptr, a.n_tok));
  return multiply({{a.gate, a.gate_bias, a.y, false}, a.x, nullptr, a.n_tok, kGemmGate, a.activation});
}

}  // namespace weir::vulkan
