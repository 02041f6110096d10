// The best logits of a step, for samplers that look at no others.
#pragma once

#include "core/status.h"
#include "device/kernels.h"
#include "ops/ops.h"

namespace weir::cuda {

using device::TopLogitsArgs;

// The n best logits in descending order, the lower id first among equals. NaN counts as -inf and is written as -inf.
Status top_logits(OpContext& cx, const TopLogitsArgs& a);

uint64_t top_logits_scratch_bytes();

}  // namespace weir::cuda
