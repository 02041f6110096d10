// The op experts of the CPU backend (ops/experts.h has the contract).
#pragma once

#include "ops/experts.h"
#include "ops/table.h"

namespace weir::cpu {

Status experts(OpContext& cx, const ExpertsArgs& a);

// Bytes at the front of OpContext::scratch that the op uses; 64-byte aligned.
uint64_t experts_scratch_bytes(const OpShapes& shapes);

}  // namespace weir::cpu
