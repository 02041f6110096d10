// The router of a mixture of experts on the GPU; see route.cu.
#pragma once

#include "cuda/common/base.cuh"
#include "ops/router.h"

namespace weir::cuda {

// What the router finds out, of n_tok tokens; device memory.
struct Routing {
  float* logits;      // [n_tok, n_logits]
  uint32_t n_logits;  // n_experts, and one more where the shared expert has a gate: its logit
  uint32_t* ids;      // [n_tok, n_used] ascending
  float* weights;     // [n_tok, n_used]
};

struct RouteArgs {
  const float* x;     // [n_tok, d_model]
  const float* norm;  // [d_model] weight of an RMS norm of x, or null; of route_one only
  float eps;
  Router router;
  const float* shared_router;  // [d_model] or null
  uint32_t n_tok, d_model;
  Routing out;
  uint32_t* counter;  // of route_one: zero before and after
};

// One token, and many whose x is normalised already.
Status route_one(OpContext& cx, const RouteArgs& a, bool overlap);
Status route_rows(OpContext& cx, const RouteArgs& a);

// x[t] *= sigmoid(the logit of the shared expert's gate), rows of n.
Status scale_by_gate(OpContext& cx, float* x, const Routing& r, uint32_t n_experts, uint32_t n_tok, uint32_t n,
                     bool overlap);

}  // namespace weir::cuda
