// The attention op: one query row by the decode kernel, more by the prompt kernel.
#include "core/memory.h"
#include "cuda/attn/attn_decode.cuh"
#include "cuda/attn/attn_prefill.h"
#include "cuda/common/base.cuh"
#include "cuda/ops.h"

namespace weir::cuda {
namespace {

uint64_t counter_bytes(uint32_t n_heads) { return align_up(n_heads * sizeof(uint32_t), 256); }

}  // namespace

uint64_t attn_scratch_bytes(const OpShapes& shapes) {
  return counter_bytes(shapes.n_heads) + attn_decode_scratch_bytes(shapes);
}

Status attn_paged(OpContext& cx, const AttnPagedArgs& a) {
  if (a.n_tok > 1 || !attn_decode_has(a.kv.head_dim)) return attn_prefill(cx, a);
  AttnDecodeArgs decode = {};
  decode.attn = a;
  decode.counters = reinterpret_cast<uint32_t*>(cx.scratch);
  decode.scratch = cx.scratch + counter_bytes(a.n_heads);
  WEIR_CUDA_TRY(cudaMemsetAsync(cx.scratch, 0, counter_bytes(a.n_heads), stream_of(cx)), "clearing counters");
  return attn_decode(cx, decode);
}

}  // namespace weir::cuda
