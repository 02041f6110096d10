// The op head_gate: attention whose output has a gate, which one matrix computes together with the queries.
#pragma once

#include <cstdint>

#include "ops/types.h"

namespace weir {

// A row of qg has, head by head, the query and then the gate. Without `apply`: y = the queries. With it, after
// attention: y *= sigmoid(the gates).
struct HeadGateArgs {
  float* y;         // out or in/out [n_tok, n_heads, head_dim]
  const float* qg;  // [n_tok, n_heads, 2, head_dim]
  uint32_t n_tok, n_heads, head_dim;
  bool apply;
  bool forked = false;  // as LayerState's
};

}  // namespace weir
