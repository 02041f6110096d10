// The op token_mass: the attention that each token of a prompt gets.
#pragma once

#include <cstdint>

#include "ops/types.h"

namespace weir {

// Attention weights of each token, summed over some query rows and the heads of a group: the observation window of
// prompt policies, and H2O's column sums (docs/algorithms.md, "H2O" and "SnapKV"). A row at position t sees tokens up
// to t, with a window only those at positions > t - window.
struct TokenMassArgs {
  float* mass;       // out [n_kv_heads, capacity * kPageTokens], tokens in use; not written beyond a page's len
  const float* q;    // [n_rows, n_heads, head_dim]
  const float* lse;  // [n_rows, n_heads], as attn_paged gave them
  KvView kv;
  uint32_t n_rows, n_heads;
  uint32_t pos;  // position of the first query row
  float scale;
  uint32_t window = 0;    // 0: none
  float soft_cap = 0.0f;  // as in AttnPagedArgs, whose lse has the sinks in it
};

}  // namespace weir
