// The table of operations that every backend fills. It knows the ops by name alone: whoever calls one includes <op>.h
// for its arguments.
#pragma once

#include <cstdint>

#include "core/status.h"
#include "ops/rules.h"
#include "ops/traits.h"
#include "ops/types.h"

namespace weir {

#define WEIR_OP(name, Args)                              \
  struct Args;                                           \
  using name##_fn = Status (*)(OpContext&, const Args&); \
  namespace ref {                                        \
  Status name(OpContext& cx, const Args& a);             \
  }
#include "ops/ops.inc"
#undef WEIR_OP

struct OpTable {
#define WEIR_OP(name, Args) name##_fn name = nullptr;
#include "ops/ops.inc"
#undef WEIR_OP
};

// Largest sizes that a session asks of its ops.
struct OpShapes {
  uint32_t n_threads = 1;
  uint32_t max_tok = 1;   // rows of one call
  uint32_t max_cols = 0;  // longest matmul input: max(d_model, d_ff, n_heads * head_dim, expert_ff, shared_ff)
  uint32_t max_rows = 0;  // most outputs of a matmul: max(vocab_size, d_ff, ...)
  uint32_t n_heads = 0, n_kv_heads = 0, head_dim = 0;
  uint32_t max_pages = 0;                      // most pages of a stream
  uint32_t d_model = 0;                        // read where there are experts
  uint32_t n_experts = 0, n_experts_used = 0;  // 0: none
  uint32_t history_tokens = 0;                 // most tokens of a history, sinks included; 0: there is none
  uint32_t expert_ff = 0, shared_ff = 0;       // rows of an expert's gate, and of the shared expert's; 0: none
  uint32_t token_pages = 0;  // most pages of a list among whose tokens attention chooses; 0: it does not
  uint32_t conv_channels = 0,
           recurrent_width = 0;  // of recurrent layers: of the convolution and of the output; 0: none
};

struct Backend {
  const char* name;  // "cpu", "reference"
  int32_t device;    // WEIR_DEVICE_*
  OpTable ops;
  uint64_t (*scratch_bytes)(const OpShapes& shapes);
  const char* (*target)();  // instruction set or device, static text
  TraitSet traits;          // what its models may do beyond the plain layer
  RuleSet rules;            // what its sessions' policies may do
  uint32_t kv_formats;      // format_bit of what its ops and sessions take pages in
};

const Backend& reference_backend();

}  // namespace weir
