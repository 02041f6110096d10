// The events of a session: the memory of their ring, in which the tables record the pages that leave, and how many the
// application has read.
#pragma once

#include "kv/kv_cache.h"
#include "kv/page_events.h"
#include "kv/part.h"

namespace weir {

class EventPart final : public Part {
 public:
  // Before lay_out(). `kv` counts the events, and is told of the ring.
  void set_shape(KvCache& kv) { kv_ = &kv; }
  const PageEventRing& ring() const { return ring_; }
  // Events that were not read yet, at most `capacity`; n_lost: how many the ring had not kept.
  uint32_t read(PageEvent* out, uint32_t capacity, uint64_t& n_lost) {
    return ring_.read(n_read_, kv_->pages_evicted(), out, capacity, n_lost);
  }

  const char* name() const override { return "the events of pages"; }
  void lay_out(Arenas& arenas) override {
    const KvShape& shape = kv_->shape();
    ring_.capacity = PageEventRing::capacity_for(shape.n_streams(), shape.recall_slots, shape.leave_at_once);
    ring_.events = arenas.host.take<PageEvent>(ring_.capacity);
    kv_->set_events(ring_);
  }
  void reset() override { n_read_ = kv_->pages_evicted(); }
  // The ring comes with the tables.
  void copy_from(const Part& other, uint32_t /*n_tokens*/) override {
    n_read_ = static_cast<const EventPart&>(other).n_read_;
  }
  void cut(uint32_t /*n_tokens*/) override {}  // what has left has left

 private:
  KvCache* kv_ = nullptr;
  PageEventRing ring_;
  uint64_t n_read_ = 0;  // number of the first event that the application has not read
};

}  // namespace weir
