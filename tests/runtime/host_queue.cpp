// What a queue of the test module keeps until somebody waits.
#include "tests/runtime/host_queue.h"

#include <cstring>
#include <iterator>
#include <string>
#include <utility>

#include "device/kernels/sparse_layer.h"

namespace weir::host_module {

Settings g_settings;

Status HostQueue::create() {
  WEIR_TRY(pool_.start(1));
  host_ = cx_;
  host_.pool = &pool_;
  cx_.stream = this;
  return {};
}

// Nobody may use a queue outside Queue::Use, but its session's constructor.
Status HostQueue::enqueue(const char* what, Work work) {
  WEIR_TRY(count_call(what));
  if (recording_ != nullptr) {
    recording_->push_back(std::move(work));
  } else {
    work_.push_back(std::move(work));
  }
  return {};
}

Status HostQueue::copy_in(void* to, const void* from, size_t bytes, const char* what) {
  count_bytes(bytes);
  return enqueue(what, [=] {
    std::memcpy(to, from, bytes);
    return Status();
  });
}

Status HostQueue::copy_out(void* to, const void* from, size_t bytes, const char* what) {
  return copy_in(to, from, bytes, what);
}

Status HostQueue::clear(void* to, size_t bytes, const char* what) {
  return enqueue(what, [=] {
    std::memset(to, 0, bytes);
    return Status();
  });
}

// What comes after a failure is not done.
Status HostQueue::wait(const char* what) {
  const std::deque<Work> work = std::exchange(work_, {});
  WEIR_TRY(count_call(what));
  for (const Work& item : work) {
    if (item().ok()) continue;
    const std::string why = last_error_text();
    return fail(WEIR_ERR_DEVICE_LOST, "%s: %s", what, why.c_str());
  }
  return {};
}

Status HostQueue::map_staging(void* host, void** out) {
  *out = seen(host);
  return count_call("mapping staging memory");
}

HostQueue::Recording HostQueue::end_recording() {
  recording_ = nullptr;
  return std::exchange(recorded_, {});
}

Status HostQueue::launch(const Recording& recording) {
  WEIR_TRY(count_call("launching a step"));
  work_.insert(work_.end(), recording.begin(), recording.end());
  return {};
}

// A branch runs beside what its leader enqueues in the meantime. Here all of it comes before that, in the opposite of
// the order in which branches begin.
Status HostQueue::begin_branches() {
  fork_ = recorded_.size();
  return {};
}

Status HostQueue::begin_branch(Queue& branch) {
  static_cast<HostQueue&>(branch).begin_recording();
  return {};
}

Status HostQueue::end_branch(Queue& branch) {
  Recording items = static_cast<HostQueue&>(branch).end_recording();
  recorded_.insert(recorded_.begin() + static_cast<std::ptrdiff_t>(fork_), std::make_move_iterator(items.begin()),
                   std::make_move_iterator(items.end()));
  return {};
}

// --- kernels that join others ----------------------------------------------------------------------------------------

// What sparse_layer of host_step.cpp computes. It observes nothing, and has no spread for estimates.
bool HostQueue::has_sparse_layer(const SparseLayerArgs& a) const {
  return joins_kernels_ && a.attn.append && a.attn.attn.page_mass == nullptr && a.recall.tables.slots == nullptr &&
         a.attn.attn.head_windows == nullptr && a.attn.attn.kv.digest != DigestKind::kMeanStd;
}

bool HostQueue::has_page_score_step(DigestKind kind, uint32_t, uint32_t) const {
  return joins_kernels_ && kind != DigestKind::kNone;
}

bool HostQueue::append_keeps_digest(DigestKind kind) const {
  return joins_kernels_ && (kind == DigestKind::kNone || kind == DigestKind::kMinMax);
}

bool HostQueue::attn_decode_can_stamp(const AttnPagedArgs& a, const PageStampArgs&) const {
  return joins_kernels_ && a.page_mass != nullptr;
}

}  // namespace weir::host_module
