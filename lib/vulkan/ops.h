// The ops that the module has, over device memory; each records its kernels and returns. The context's mutex is held.
#pragma once

#include "ops/ops.h"

namespace weir::vulkan {

Status embed(OpContext& cx, const EmbedArgs& a);
Status rms_norm(OpContext& cx, const RmsNormArgs& a);
Status matmul(OpContext& cx, const MatmulArgs& a);
Status glu_matmul(OpContext& cx, const GluMatmulArgs& a);
Status experts(OpContext& cx, const ExpertsArgs& a);
Status rope_append(OpContext& cx, const RopeAppendArgs& a);
Status soft_cap(OpContext& cx, const SoftCapArgs& a);

// One part of a matmul, at least one row of x; with gates [n_tok] sigmoid(gate) times the product.
Status gated_matmul(const MatmulPart& part, const float* x, const float* gates, uint32_t n_tok);

uint64_t experts_scratch_bytes(const OpShapes& shapes);

// Whether the kernels can compute with this matrix; the message says why not.
Status check_weight(const Weight& w);

}  // namespace weir::vulkan
