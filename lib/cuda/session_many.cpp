// Decode steps of several sessions at once: a GEMV reads its weights once for all sessions whose inputs fit into shared
// memory together.
//
// Such a step is one CUDA graph (lib/device/session_step.cpp has its contents), launched by the first session, the
// leader. A graph is valid for these sessions in this order, and for the set of them that selects pages. Preparing the
// first step of a group records it; later steps find it among the few graphs that the leader keeps. A call of the
// application prepares all its groups before any of them steps. Each group has another leader, so no graph displaces
// one of the same call. Recorded graphs take the driver's memory, none of the library's.
#include <algorithm>
#include <atomic>

#include "cuda/cuda_session.h"

namespace weir::cuda {

uint64_t CudaSession::new_serial() {
  static std::atomic<uint64_t> n_sessions{0};
  return ++n_sessions;
}

SessionGroup CudaSession::together(DeviceSession* const* sessions, uint32_t n) {
  SessionGroup group;
  group.n = n;
  for (uint32_t i = 0; i < n; ++i) {
    auto* session = static_cast<CudaSession*>(sessions[i]);  // the module creates no other class
    group.session[i] = session;
    group.selects[i] = session->selects_now();
  }
  return group;
}

JointKey CudaSession::key_of(const SessionGroup& group) {
  JointKey key;
  for (uint32_t i = 0; i < group.n; ++i) {
    key.serial[i] = static_cast<const CudaSession*>(group.session[i])->serial_;
    key.selects |= (group.selects[i] ? 1u : 0u) << i;
  }
  return key;
}

// The graph of the group's step, or null if it was not recorded.
cudaGraphExec_t CudaSession::find_graph(const SessionGroup& group) {
  if (group.n == 1) return group.selects[0] ? selected_ : all_pages_;
  const JointKey key = key_of(group);
  for (JointGraph& known : joint_) {
    if (known.exec == nullptr || known.key != key) continue;
    known.last_use = ++n_joint_uses_;
    return known.exec;
  }
  return nullptr;
}

Status CudaSession::prepare_together(const SessionGroup& group) {
  const OnDevice on_device;
  if (find_graph(group) != nullptr) return {};
  cudaGraphExec_t made = nullptr;
  if (const Status status = record(group, made); !status.ok()) {
    if (made != nullptr) (void)cudaGraphExecDestroy(made);
    return note_all(group, status);
  }
  JointGraph& place = *std::min_element(
      joint_, joint_ + kJointGraphs, [](const JointGraph& a, const JointGraph& b) { return a.last_use < b.last_use; });
  if (place.exec != nullptr) (void)cudaGraphExecDestroy(place.exec);
  place = {key_of(group), made, ++n_joint_uses_};
  return {};
}

// No session has work in flight, because every call waits for its own. So only the leader's stream is launched into and
// waited for.
Status CudaSession::step_together(const SessionGroup& group, const int32_t* tokens) {
  const OnDevice on_device;
  const cudaGraphExec_t graph = find_graph(group);
  if (graph == nullptr) return fail(WEIR_ERR_INTERNAL, "a step of %u sessions was not prepared", group.n);
  WEIR_TRY(open_step(group, tokens));
  // A launch that fails also counts as a lost device, because other groups of the same call may have stepped.
  const cudaError_t launched = cudaGraphLaunch(graph, cuda_queue_.stream());
  return close_step(group, launched == cudaSuccess ? Status() : CudaQueue::lost(launched, "launching a step"));
}

Status prepare_many(DeviceSession* const* sessions, uint32_t n) {
  const SessionGroup group = CudaSession::together(sessions, n);
  return static_cast<CudaSession*>(sessions[0])->prepare_together(group);
}

Status step_many(DeviceSession* const* sessions, const int32_t* tokens, uint32_t n) {
  const SessionGroup group = CudaSession::together(sessions, n);
  return static_cast<CudaSession*>(sessions[0])->step_together(group, tokens);
}

}  // namespace weir::cuda
