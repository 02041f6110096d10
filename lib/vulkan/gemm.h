// Products of matrices with many rows of x, as prompts have them.
#pragma once

#include "ops/ops.h"

namespace weir::vulkan {

// part.y [n_tok, n_rows] (+)= W x (+ bias); with gates [n_tok] sigmoid(gate) times that.
Status gemm(const MatmulPart& part, const float* x, const float* gates, uint32_t n_tok);
Status gemm_glu(const GluMatmulArgs& a);

}  // namespace weir::vulkan
