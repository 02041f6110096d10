// Decode steps of several sessions at once: a product reads its weights one time for all sessions whose inputs fit into shared memory together. Such a
// step is one CUDA graph (session_step.cpp has what is in it), launched by the session that comes first. It holds for these sessions in this order, and
// for who of them selects pages; preparing the first step of a set records it, later ones find it among the few that the leading session keeps. A call
// of the application prepares all its groups before any steps; each has a leader of its own, so that no graph pushes out another one of the same call.
// Recording and keeping graphs takes the driver's memory, none of ours.
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
    group.session[i] = static_cast<CudaSession*>(sessions[i]);  // the module makes no others
    group.selects[i] = group.session[i]->selects_now();
  }
  return group;
}

JointKey CudaSession::key_of(const SessionGroup& group) {
  JointKey key;
  for (uint32_t i = 0; i < group.n; ++i) {
    key.serial[i] = group.session[i]->serial_;
    key.selects |= (group.selects[i] ? 1u : 0u) << i;
  }
  return key;
}

// The graph of the group's step; null: not recorded.
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

Status CudaSession::note_all(const SessionGroup& group, Status status) {
  for (uint32_t i = 0; i < group.n; ++i) status = group.session[i]->note(status);
  return status;
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

// No session has work under way: every call waits for its own. So the leader's stream is the only one to launch into and to wait for.
Status CudaSession::step_together(const SessionGroup& group, const int32_t* tokens) {
  const OnDevice on_device;
  const cudaGraphExec_t graph = find_graph(group);
  if (graph == nullptr) return fail(WEIR_ERR_INTERNAL, "a step of %u sessions was not prepared", group.n);
  for (uint32_t i = 0; i < group.n; ++i) group.session[i]->a_.host.tokens[0] = tokens[i];
  // A launch that fails counts as a lost device too: other groups of the same call may have stepped.
  const cudaError_t launched = cudaGraphLaunch(graph, stream_);
  WEIR_TRY(note_all(group, launched == cudaSuccess ? wait("a decode step") : lose(launched, "launching a step")));
  for (uint32_t i = 0; i < group.n; ++i) WEIR_TRY(group.session[i]->check_room());
  return {};
}

Status prepare_many(DeviceSession* const* sessions, uint32_t n) {
  const SessionGroup group = CudaSession::together(sessions, n);
  return group.session[0]->prepare_together(group);
}

Status step_many(DeviceSession* const* sessions, const int32_t* tokens, uint32_t n) {
  const SessionGroup group = CudaSession::together(sessions, n);
  return group.session[0]->step_together(group, tokens);
}

}  // namespace weir::cuda
