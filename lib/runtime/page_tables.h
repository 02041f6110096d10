// The page tables of a session. A session on a device has them twice: the host's, on which the library's policies work
// around prompts, and the device's, which its steps change. What is out of date is known here and nowhere else: whoever
// changes the host's tables holds a Change.
#pragma once

#include "core/status.h"
#include "kv/kv_cache.h"

namespace weir {

class PageTables {
 public:
  // The host's tables, to change. From its beginning to its end the device's are out of date whenever they were not
  // sent since.
  class Change {
   public:
    explicit Change(PageTables& tables) : tables_(tables) { tables.device_is_behind_ = true; }
    ~Change() { tables_.device_is_behind_ = true; }
    Change(const Change&) = delete;
    Change& operator=(const Change&) = delete;
    KvCache& operator*() const { return tables_.kv_; }
    KvCache* operator->() const { return &tables_.kv_; }

   private:
    PageTables& tables_;
  };

  // The host's, to read. Counters are always current, rows after fetch().
  const KvCache& kv() const { return kv_; }
  // After fetch().
  Change change() { return Change(*this); }
  // Whatever the device has: the conversation is made anew.
  Change replace() {
    host_is_behind_ = false;
    return change();
  }

  // Calls get(), which copies the device's tables, if the host's are out of date, and put(), which sends the host's, if
  // the device's are.
  template <class Get>
  Status fetch(Get&& get) {
    if (!host_is_behind_) return {};
    WEIR_TRY(get());
    host_is_behind_ = false;
    return {};
  }
  template <class Put>
  Status send(Put&& put) {
    if (!device_is_behind_) return {};
    WEIR_TRY(put());
    device_is_behind_ = false;
    return {};
  }
  // Before a decode step on the device: move(OpenMove) does what open pages need. After send().
  template <class Move>
  Status open_next(const Move& move) {
    kv_.open_next();
    return kv_.move_open_pages(move);
  }
  // The device changes its tables, and tells what it counts.
  void leave_to_device() { host_is_behind_ = true; }
  void count(const KvCounters& counters) { kv_.set_counters(counters); }

 private:
  KvCache kv_;
  bool host_is_behind_ = false, device_is_behind_ = false;
};

}  // namespace weir
