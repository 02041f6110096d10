// What samplers ask of a step's logits: the best, if they look at no others, and sums and single logits.
#pragma once

#include "core/status.h"
#include "device/kernels.h"
#include "ops/types.h"

namespace weir::cuda {

using device::ReadLogitsArgs;
using device::TopLogitsArgs;

Status top_logits(OpContext& cx, const TopLogitsArgs& a);
Status read_logits(OpContext& cx, const ReadLogitsArgs& a);

uint64_t top_logits_scratch_bytes();

}  // namespace weir::cuda
