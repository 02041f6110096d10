// The CUDA backend's functions: the ops of the table, and the fused kernels that a decode step consists of. Pointers in
// the arguments of ops are device memory, the stream is OpContext::stream, and no op waits for the device.
#pragma once

#include "kv/kv_cache.h"
#include "kv/step_state.h"
#include "ops/ops.h"
#include "ops/step_rules.h"

namespace weir::cuda {

#define WEIR_OP(name, Args) Status name(OpContext& cx, const Args& a);
#include "ops/ops.inc"
#undef WEIR_OP

// Bytes of OpContext::scratch (device memory) that these ops need for sessions of these shapes.
uint64_t matmul_scratch_bytes(const OpShapes& shapes);  // matmul.cu
uint64_t attn_scratch_bytes(const OpShapes& shapes);    // attn_paged.cu
uint64_t page_select_scratch_bytes(const OpShapes& shapes);
uint64_t experts_scratch_bytes(const OpShapes& shapes);  // experts.cu

using StepTables = KvTables;

// The beginning of a decode step: evicts the pages that the policy's rules select, opens a page in every stream where
// position n_tokens is the first of a page, counts the token in the pages' `len`, and computes the RoPE factors cos_sin
// [rope_dim / 2, 2] of position n_tokens for each rotation of the model. step_end increments n_tokens itself.
struct StepBeginArgs {
  StepTables tables;
  StepRules rules;
  StepState* state;
  const double* angles;  // [n_rotations, rope_dim / 2] radians per position
  double magnitude[kMostRotations];
  uint32_t rope_dim, n_rotations;
  uint32_t stride;  // from one rotation to the next in cos_sin and cos_sin_sink
  float* cos_sin;
  float* cos_sin_sink;   // null unless the rules have in_cache_pos
  uint32_t* counter;     // zero before and after
  PageEventRing events;  // in host memory
  // With recall: where copies are, which rows have their pages in the pool, and the digests, each of all layers by row.
  const uint32_t* raw_index = nullptr;
  uint32_t* resident = nullptr;  // [n_streams, resident_words(max_capacity)] one bit per row
  uint32_t max_capacity = 0;
  uint16_t* digests = nullptr;
  uint32_t digest_elements = 0;
};
Status step_begin(OpContext& cx, const StepBeginArgs& a);
constexpr uint32_t resident_words(uint32_t n_rows) { return (n_rows + 31) / 32; }

// softmax(scale * score) over the table rows in use of each head, in place. It turns digest estimates into weights, for
// RaaS with stamps from digests.
struct PageSoftmaxArgs {
  float* score;             // in/out [n_heads, capacity]
  const uint32_t* n_pages;  // [n_kv_heads]
  uint32_t capacity, n_heads, n_kv_heads;
  float scale;
};
Status page_softmax(OpContext& cx, const PageSoftmaxArgs& a);

}  // namespace weir::cuda
