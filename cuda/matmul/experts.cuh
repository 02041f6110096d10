// Mixture of experts on the GPU: what the op (experts.cu), its path for prompts (experts_prompt.cu) and the recorded
// decode step share. All arrays are device memory; which experts are chosen never leaves the device.
#pragma once

#include "cuda/common/base.cuh"
#include "cuda/matmul/route.cuh"
#include "device/kernels.h"
#include "ops/table.h"

namespace weir::cuda {

using device::ExpertsStepArgs;

// After the router, one kernel for the gates and ups of all chosen experts, and one for their downs. They read the
// weights of these experts and of no other.
Status experts_step(OpContext& cx, const ExpertsStepArgs& a);

// More tokens than go one by one: rows grouped by expert, through the GEMM.
Status experts_prompt(OpContext& cx, const ExpertsArgs& a);
uint64_t experts_prompt_bytes(const OpShapes& shapes);

RouteArgs route_args(const ExpertsArgs& a, const Routing& out);

}  // namespace weir::cuda
