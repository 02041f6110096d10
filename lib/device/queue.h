// A device's queue of work, one for each session: kernels, copies and waiting. Work runs in the order in which it was
// enqueued. Modules implement it; base_session.h says what is enqueued.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "core/status.h"
#include "device/kernels.h"
#include "ops/types.h"

namespace weir::device {

class Queue {
 public:
  Queue() = default;
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

#define WEIR_KERNEL(name, Args) virtual Status name(const Args& a) = 0;
#include "device/kernels.inc"
#undef WEIR_KERNEL

  // Whether the device has sparse_layer for these arguments. If not, its parts are enqueued one by one.
  virtual bool has_sparse_layer(const SparseLayerArgs& a) const = 0;
  // The same for page_score_step with groups of `group` query heads to a KV head. If not: rope_append_at and
  // page_score.
  virtual bool has_page_score_step(DigestKind kind, uint32_t head_dim, uint32_t group) const = 0;
  // Whether attn_stop takes AttnDecodeArgs::append with these arguments, of which sizes count, and whether masses are
  // wanted. If not, rope_append_at comes before it.
  virtual bool attn_stop_appends(const AttnPagedArgs& a) const = 0;
  // Whether attn_decode and sparse_layer, appending, keep such digests up to date.
  virtual bool append_keeps_digest(DigestKind kind) const = 0;
  // Whether AttnDecodeArgs::stamps can be set for this call.
  virtual bool attn_decode_can_stamp(const AttnPagedArgs& a, const PageStampArgs& stamp) const = 0;

  // Copies between the device and staging memory, and zeros. `what` is for messages, also below.
  virtual Status copy_in(void* to, const void* from, size_t bytes, const char* what) = 0;
  virtual Status copy_out(void* to, const void* from, size_t bytes, const char* what) = 0;
  virtual Status clear(void* to, size_t bytes, const char* what) = 0;
  // Waits for all work. Every failure is WEIR_ERR_DEVICE_LOST: how much was done is unknown.
  virtual Status wait(const char* what) = 0;
  // A prompt chunk begins, and has enqueued a layer of its n_rows rows: a queue may submit here and wait, so that none
  // of its submissions runs long.
  virtual void begin_chunk() {}
  virtual Status end_layer(uint32_t n_rows) {
    (void)n_rows;
    return {};
  }
  // The most rows that a chunk should have.
  virtual uint32_t max_rows() const { return UINT32_MAX; }
  // Whether work is left that the host may have to answer (DeviceRecall); false also after a failure, which wait()
  // reports.
  virtual bool is_busy() = 0;

  // Branches of a recording: from begin_branches() on, what is enqueued in `branch` between these calls runs beside
  // what is enqueued here; what is enqueued here afterwards waits for it.
  virtual Status begin_branches() = 0;
  virtual Status begin_branch(Queue& branch) = 0;
  virtual Status end_branch(Queue& branch) = 0;

  // The device's address of staging memory.
  template <class T>
  Status map(T* host, T*& out) {
    void* address = nullptr;
    WEIR_TRY(map_staging(const_cast<std::remove_const_t<T>*>(host), &address));
    out = static_cast<T*>(address);
    return {};
  }

  // The calling thread may use the device while this object lives.
  class Use {
   public:
    explicit Use(Queue& queue) : queue_(queue), before_(queue.enter()) {}
    ~Use() { queue_.leave(before_); }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    Queue& queue_;
    int before_;
  };

 protected:
  ~Queue() = default;

 private:
  virtual Status map_staging(void* host, void** out) = 0;
  // The device that the calling thread used before, and back to it.
  virtual int enter() = 0;
  virtual void leave(int before) = 0;
};

}  // namespace weir::device
