// Attention weights of tokens over many query rows on the CPU; ops/token_mass.h has the contract.
#pragma once

#include "ops/table.h"
#include "ops/token_mass.h"

namespace weir::cpu {

Status token_mass(OpContext& cx, const TokenMassArgs& a);
uint64_t token_mass_scratch_bytes(const OpShapes& shapes);

}  // namespace weir::cpu
