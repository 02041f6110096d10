// The ops that the module has, over device memory; each records its kernels and returns. The context's mutex is held.
#pragma once

#include "ops/table.h"
#include "quant/weight_type.h"

namespace weir {
struct MatmulPart;
}  // namespace weir

namespace weir::vulkan {

#define WEIR_OP(name, Args) Status name(OpContext& cx, const Args& a);
#include "vulkan/ops.inc"
#undef WEIR_OP

// The table of these ops for sessions; the module's own takes the lock in each.
const OpTable& op_table();

// One part of a matmul, at least one row of x; with gates [n_tok] sigmoid(gate) times the product.
Status gated_matmul(OpContext& cx, const MatmulPart& part, const float* x, const float* gates, uint32_t n_tok);

uint64_t experts_scratch_bytes(const OpShapes& shapes);
uint64_t attn_scratch_bytes(const OpShapes& shapes);

// Whether the kernels can compute with this matrix; the message says why not.
Status check_weight(const Weight& w);

}  // namespace weir::vulkan
