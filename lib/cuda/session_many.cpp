// Decode steps of several sessions at once: a GEMV reads its weights once for all sessions whose inputs fit into shared
// memory together. Such a step is one CUDA graph (lib/device/session_step.cpp has its contents), launched by the leader
// (lib/device/joint_steps.h).
#include "cuda/cuda_session.h"

namespace weir::cuda {

static void destroy(cudaGraphExec_t graph) { (void)cudaGraphExecDestroy(graph); }

void CudaSession::forget_joint_steps() { joint_.clear(destroy); }

// The graph of the group's step, or null if it was not recorded.
cudaGraphExec_t CudaSession::find_graph(const SessionGroup& group) {
  if (group.n == 1) return group.selects[0] ? selected_ : all_pages_;
  const cudaGraphExec_t* known = joint_.find(device::JointKey(group));
  return known != nullptr ? *known : nullptr;
}

Status CudaSession::prepare_together(const SessionGroup& group) {
  const OnDevice on_device;
  if (find_graph(group) != nullptr) return {};
  cudaGraphExec_t made = nullptr;
  if (const Status status = record(group, made); !status.ok()) {
    if (made != nullptr) destroy(made);
    return note_all(group, status);
  }
  joint_.keep(device::JointKey(group), made, destroy);
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
  return static_cast<CudaSession*>(sessions[0])->prepare_together(CudaSession::together(sessions, n));
}

Status step_many(DeviceSession* const* sessions, const int32_t* tokens, uint32_t n) {
  return static_cast<CudaSession*>(sessions[0])->step_together(CudaSession::together(sessions, n), tokens);
}

}  // namespace weir::cuda
