// A session's queue on a Vulkan device: the context's recorder, to which every session of the process enqueues in turn.
#pragma once

#include "device/queue.h"
#include "vulkan/attn_decode.h"
#include "vulkan/context.h"
#include "vulkan/pace.h"
#include "vulkan/steps.h"

namespace weir::vulkan {

class VulkanQueue final : public device::Queue {
 public:
  // `cx` is the session's. Between two kernels `row` [longest input of a matrix] has what a step's norm gives, and
  // `packed` [packed_bytes of it] the inputs of several sessions.
  VulkanQueue(OpContext& cx, float* row, std::byte* packed) : cx_(cx), row_(row), packed_(packed) {}

#define WEIR_KERNEL(name, Args) Status name(const Args& a) override;
#include "device/kernels.inc"
#undef WEIR_KERNEL

  bool has_sparse_layer(const SparseLayerArgs&) const override { return false; }
  bool has_page_score_step(DigestKind kind, uint32_t head_dim, uint32_t) const override {
    return kind == DigestKind::kMinMax && head_dim % 4 == 0;
  }
  bool attn_stop_appends(const AttnPagedArgs& a) const override { return vulkan::attn_stop_appends(a); }
  bool append_keeps_digest(DigestKind kind) const override {
    return kind == DigestKind::kNone || kind == DigestKind::kMinMax;
  }
  bool attn_decode_can_stamp(const AttnPagedArgs& a, const PageStampArgs& stamp) const override {
    return vulkan::attn_decode_can_stamp(a, stamp);
  }
  Status copy_in(void* to, const void* from, size_t bytes, const char* what) override;
  Status copy_out(void* to, const void* from, size_t bytes, const char* what) override;
  Status clear(void* to, size_t bytes, const char* what) override;
  Status wait(const char* what) override;
  void begin_chunk() override { pace_.begin(); }
  Status end_layer(uint32_t n_rows) override;
  uint32_t max_rows() const override;
  bool is_busy() override { return false; }  // no kernel waits for the host
  // All sessions use one recorder: work of another session follows by itself.
  Status begin_branches() override { return {}; }
  Status begin_branch(Queue&) override { return {}; }
  Status end_branch(Queue&) override { return {}; }

 private:
  Status map_staging(void* host, void** out) override;
  int enter() override;
  void leave(int before) override;

  OpContext& cx_;
  float* const row_;
  std::byte* const packed_;
  Pace pace_;
};

}  // namespace weir::vulkan
