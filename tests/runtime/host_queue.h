// The queue of a session of the test module (host_module.cpp). Whatever is enqueued is kept and done in order by the
// processor when somebody waits, no earlier: what lib/device does not wait for has not happened, and what it enqueues
// must still be valid then. Steps are recorded once and done many times.
//
// The device sees staging memory at other addresses than the host, which neither can use in place of its own.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <vector>

#include "device/kernels/add_left.h"
#include "device/kernels/attn_decode.h"
#include "device/kernels/attn_stop.h"
#include "device/kernels/compensate.h"
#include "device/kernels/copies.h"
#include "device/kernels/experts_step.h"
#include "device/kernels/fill.h"
#include "device/kernels/gemv.h"
#include "device/kernels/list_windows.h"
#include "device/kernels/logits.h"
#include "device/kernels/move_open_page.h"
#include "device/kernels/page_recall.h"
#include "device/kernels/page_score_step.h"
#include "device/kernels/page_softmax.h"
#include "device/kernels/page_stamp_at.h"
#include "device/kernels/rope_append_at.h"
#include "device/kernels/rotate_heads.h"
#include "device/kernels/sparse_layer.h"
#include "device/kernels/step_begin.h"
#include "device/kernels/step_end.h"
#include "device/queue.h"
#include "ops/ops.h"

namespace weir::host_module {

using namespace device;  // arguments of kernels

// What the module is told to do otherwise, for all sessions that are created from then on.
struct Settings {
  // The queue says it has the kernels that join others, as far as it can have them.
  bool joins_kernels = true;
};
extern Settings g_settings;

// Fails when it is told to, as weir_host_module_fail_at says; `what` is for the message.
Status count_call(const char* what);

// Bytes that cross between host and device: copies of sessions, and what answers about logits have.
inline std::atomic<uint64_t> g_bytes{0};
inline void count_bytes(size_t n) { g_bytes += n; }

// The host's address of staging memory, from the device's.
inline constexpr uintptr_t kMapped = uintptr_t{1} << 62;
template <class T>
T* seen(T* mapped) {
  return reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(mapped) ^ kMapped);
}

// A kernel or op that is kept, with the host memory that its arguments point to.
template <class Args>
struct Kept {
  explicit Kept(const Args& args) : a(args) {}
  const Args& args() { return a; }
  Args a;
};
template <>
struct Kept<GemvArgs> {
  explicit Kept(const GemvArgs& args) : a(args), more(args.more, args.more + args.n_more) {}
  const GemvArgs& args() {
    a.more = more.data();
    return a;
  }
  GemvArgs a;
  std::vector<GemvColumn> more;
};
template <>
struct Kept<AttnPagedArgs> {
  explicit Kept(const AttnPagedArgs& args) : a(args), carry(args.carry == nullptr ? AttnCarry{} : *args.carry) {}
  const AttnPagedArgs& args() {
    if (a.carry != nullptr) a.carry = &carry;
    return a;
  }
  AttnPagedArgs a;
  AttnCarry carry;
};
// The tokens of a decode step are in staging memory, those of a prompt are not.
template <>
struct Kept<EmbedArgs> {
  explicit Kept(const EmbedArgs& args) : a(args) {
    if ((reinterpret_cast<uintptr_t>(a.tokens) & kMapped) != 0) a.tokens = seen(a.tokens);
  }
  const EmbedArgs& args() { return a; }
  EmbedArgs a;
};

// The kernels (lib/device/kernels.h) in plain C++: host_kernels.cpp, host_begin.cpp, host_recall.cpp and host_step.cpp.
#define WEIR_KERNEL(name, Args) Status name(OpContext& cx, const Args& a);
#include "device/kernels.inc"
#undef WEIR_KERNEL

class HostQueue final : public Queue {
 public:
  using Work = std::function<Status()>;
  using Recording = std::vector<Work>;

  // `cx` is the session's; ops find the queue in it.
  explicit HostQueue(OpContext& cx) : cx_(cx), joins_kernels_(g_settings.joins_kernels) {}
  Status create();

#define WEIR_KERNEL(name, Args) \
  Status name(const Args& a) override { return keep(#name, a, host_module::name); }
#include "device/kernels.inc"
#undef WEIR_KERNEL

  template <class Args, class F>
  Status keep(const char* what, const Args& a, F run) {
    return enqueue(what, [this, run, kept = Kept<Args>(a)]() mutable {
      const ThreadPool::Lease lease(pool_);
      return run(host_, kept.args());
    });
  }

  bool has_sparse_layer(const SparseLayerArgs& a) const override;
  bool has_page_score_step(DigestKind kind, uint32_t head_dim, uint32_t group) const override;
  bool attn_stop_appends(const AttnPagedArgs&) const override { return true; }
  bool append_keeps_digest(DigestKind kind) const override;
  bool attn_decode_can_stamp(const AttnPagedArgs& a, const PageStampArgs& stamp) const override;
  Status copy_in(void* to, const void* from, size_t bytes, const char* what) override;
  Status copy_out(void* to, const void* from, size_t bytes, const char* what) override;
  Status clear(void* to, size_t bytes, const char* what) override;
  Status wait(const char* what) override;
  bool is_busy() override { return false; }
  Status begin_branches() override;
  Status begin_branch(Queue& branch) override;
  Status end_branch(Queue& branch) override;

  // What is enqueued between these calls is recorded, and launch() enqueues it again.
  void begin_recording() { recording_ = &recorded_; }
  Recording end_recording();
  Status launch(const Recording& recording);
  bool has_work() const { return !work_.empty(); }

 private:
  Status enqueue(const char* what, Work work);
  Status map_staging(void* host, void** out) override;
  int enter() override { return ++n_users_ - 1; }
  void leave(int before) override { n_users_ = before; }

  OpContext& cx_;
  OpContext host_;  // of the processor's ops
  ThreadPool pool_{std::pmr::new_delete_resource()};
  const bool joins_kernels_;
  std::deque<Work> work_;
  Recording recorded_;
  Recording* recording_ = nullptr;  // of this queue or, in a branch, of the leader's
  size_t fork_ = 0;                 // of the branches, in recorded_
  int n_users_ = 0;
};

}  // namespace weir::host_module
