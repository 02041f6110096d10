// Gated short convolution on the CPU; ops/short_conv.h has the contract.
#pragma once

#include "ops/short_conv.h"

namespace weir::cpu {

Status short_conv(OpContext& cx, const ShortConvArgs& a);

}  // namespace weir::cpu
