// A session's queue on the GPU: a stream, and the kernels that it runs.
#pragma once

#include "cuda/attn/attn_decode.cuh"
#include "cuda/attn/attn_prefill.h"
#include "cuda/attn/attn_stop.cuh"
#include "cuda/attn/compensate.cuh"
#include "cuda/attn/sparse_layer.cuh"
#include "cuda/common/base.cuh"
#include "cuda/common/device.cuh"
#include "cuda/matmul/experts.cuh"
#include "cuda/matmul/gemv.cuh"
#include "cuda/ops.h"
#include "cuda/pages/left_sums.cuh"
#include "cuda/pages/list_windows.cuh"
#include "cuda/pages/page_digest.cuh"
#include "cuda/pages/page_recall.cuh"
#include "cuda/pages/page_score.cuh"
#include "cuda/step/step.cuh"
#include "cuda/step/top_logits.cuh"
#include "device/kernels/copies.h"
#include "device/kernels/page_stamp_at.h"
#include "device/kernels/rope_append_at.h"
#include "device/queue.h"

namespace weir::cuda {

using device::CopyPagesArgs;
using device::CopyRowOutArgs;
using device::MarkResidentArgs;
using device::PageStampAtArgs;
using device::RopeAppendAtArgs;

// Kernels whose functions take more than one argument.
inline Status rope_append_at(OpContext& cx, const RopeAppendAtArgs& a) {
  return rope_append_at(cx, a.op, a.n_tokens, a.overlap);
}
inline Status page_stamp_at(OpContext& cx, const PageStampAtArgs& a) { return page_stamp_at(cx, a.op, a.state); }
inline Status mark_resident(OpContext& cx, const MarkResidentArgs& a) {
  return mark_resident(cx, a.tables, a.resident, a.max_capacity);
}
inline Status copy_row_out(OpContext& cx, const CopyRowOutArgs& a) {
  return copy_row_out(cx, a.tables, a.row, a.pool, a.page_bytes, a.pages);
}
inline Status copy_pages(OpContext& cx, const CopyPagesArgs& a) {
  return copy_pages(cx, a.pool, a.page_bytes, a.pages, a.slots, a.n, a.in);
}

class CudaQueue final : public device::Queue {
 public:
  // `cx` is the session's, whose stream create() sets.
  explicit CudaQueue(OpContext& cx) : cx_(cx) {}
  Status create();
  void destroy();
  cudaStream_t stream() const { return stream_; }
  // The status of work that failed, WEIR_ERR_DEVICE_LOST whatever the error is: the amount of work that was done is
  // unknown.
  static Status lost(cudaError_t error, const char* what);

#define WEIR_KERNEL(name, Args) \
  Status name(const Args& a) override { return cuda::name(cx_, a); }
#include "device/kernels.inc"
#undef WEIR_KERNEL

  bool has_sparse_layer(const SparseLayerArgs& a) const override { return cuda::has_sparse_layer(a); }
  bool has_page_score_step(DigestKind kind, uint32_t head_dim, uint32_t group) const override {
    return cuda::has_page_score_step(kind, head_dim, group);
  }
  bool attn_stop_appends(const AttnPagedArgs&) const override { return false; }
  bool append_keeps_digest(DigestKind kind) const override { return cuda::append_keeps_digest(kind); }
  bool attn_decode_can_stamp(const AttnPagedArgs& a, const PageStampArgs& stamp) const override {
    return cuda::attn_decode_can_stamp(a, stamp);
  }
  Status copy_in(void* to, const void* from, size_t bytes, const char* what) override;
  Status copy_out(void* to, const void* from, size_t bytes, const char* what) override;
  Status clear(void* to, size_t bytes, const char* what) override;
  Status wait(const char* what) override;
  bool is_busy() override { return cudaStreamQuery(stream_) == cudaErrorNotReady; }
  Status begin_branches() override;
  Status begin_branch(Queue& branch) override;
  Status end_branch(Queue& branch) override;

 private:
  Status map_staging(void* host, void** out) override;
  int enter() override;
  void leave(int before) override;

  OpContext& cx_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t event_ = nullptr;  // marks where branches of a recording begin and end
};

}  // namespace weir::cuda
