// The attention ops: one query row goes to the decode kernel, more rows to the prefill kernel.
#include "core/memory.h"
#include "cuda/attn/attn_decode.cuh"
#include "cuda/attn/attn_prefill.h"
#include "cuda/common/base.cuh"
#include "cuda/ops.h"
#include "cuda/pages/page_recall.cuh"
#include "device/kernels/attn_decode.h"
#include "ops/attn_history.h"
#include "ops/attn_paged.h"
#include "ops/attn_progressive.h"
#include "ops/attn_stamp.h"
#include "ops/history_begin.h"
#include "ops/table.h"

namespace weir::cuda {
namespace {

uint64_t counter_bytes(uint32_t n_heads) { return align_up(n_heads * sizeof(uint32_t), 256); }

}  // namespace

uint64_t attn_scratch_bytes(const OpShapes& shapes) {
  return counter_bytes(shapes.n_heads) + attn_decode_scratch_bytes(shapes);
}

namespace {

// Runs the decode kernel with its counters and partial results in the op's scratch memory.
Status decode(OpContext& cx, AttnDecodeArgs& d) {
  const uint64_t n_counters = counter_bytes(d.attn.n_heads);
  d.counters = reinterpret_cast<uint32_t*>(cx.scratch);
  d.scratch = cx.scratch + n_counters;
  WEIR_CUDA_TRY(cudaMemsetAsync(cx.scratch, 0, n_counters, stream_of(cx)), "clearing counters");
  return attn_decode(cx, d);
}

}  // namespace

namespace {

// Between the parts AttnCarry::high is the log-sum-exp of those before, and the output is that of them alone.
Status attend_part(OpContext& cx, const AttnPagedArgs& a) {
  const AttnCarry& carry = *a.carry;
  const uint32_t n = a.n_tok * a.n_heads;
  AttnPagedArgs part = a;
  part.carry = nullptr;
  part.sinks = carry.last ? a.sinks : nullptr;  // learned sinks take their share once
  part.out = carry.first ? a.out : carry.part_out;
  part.lse = carry.first ? carry.high : carry.sum;
  WEIR_TRY(attn_prefill(cx, part));
  if (!carry.first) WEIR_TRY(merge_unit(cx, {a.out, carry.high, part.out, part.lse, n, a.kv.head_dim}));
  if (!carry.last || a.lse == nullptr) return {};
  return cuda_status(cudaMemcpyAsync(a.lse, carry.high, n * sizeof(float), cudaMemcpyDeviceToDevice, stream_of(cx)),
                     "copying sums");
}

}  // namespace

Status attn_paged(OpContext& cx, const AttnPagedArgs& a) {
  if (a.carry != nullptr) return attend_part(cx, a);
  if (a.n_tok > 1) return attn_prefill(cx, a);
  AttnDecodeArgs d = {};
  d.attn = a;
  return decode(cx, d);
}

Status attn_stamp(OpContext& cx, const AttnStampArgs& a) {
  AttnDecodeArgs d = {};
  d.attn = a.attn;
  d.stamp = a.stamp;
  d.stamps = attn_decode_can_stamp(a.attn, a.stamp);
  if (d.stamps) return decode(cx, d);
  WEIR_TRY(attn_paged(cx, a.attn));
  return page_stamp(cx, a.stamp);
}

Status attn_progressive(OpContext&, const AttnProgressiveArgs&) {
  return fail(WEIR_ERR_UNSUPPORTED, "CUDA: there is no attn_progressive");
}

Status attn_history(OpContext&, const AttnHistoryArgs&) {
  return fail(WEIR_ERR_UNSUPPORTED, "CUDA: there is no attn_history");
}

Status history_begin(OpContext&, const HistoryBeginArgs&) {
  return fail(WEIR_ERR_UNSUPPORTED, "CUDA: there is no history_begin");
}

}  // namespace weir::cuda
