// Products of matrices with many rows of x, as prompts have them: by cooperative matrices in f16 where the device has
// them, else in f32.
#pragma once

#include "ops/table.h"

namespace weir {
struct MatmulPart;
}  // namespace weir

namespace weir::vulkan {

// The scratch memory that these take from the beginning of an OpContext's.
uint64_t gemm_scratch_bytes(const OpShapes& shapes);

// part.y [n_tok, n_rows] (+)= W x (+ bias), of several parts; with gates [n_tok] sigmoid(gate) times that.
Status gemm(OpContext& cx, const MatmulArgs& a, const float* gates);
Status gemm_glu(OpContext& cx, const GluMatmulArgs& a);
// In f32 on every device.
Status gemm_f32(const MatmulPart& part, const float* x, uint32_t n_tok);

}  // namespace weir::vulkan
