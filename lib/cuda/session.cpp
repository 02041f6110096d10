// Creation of a session on the GPU, and how its steps are recorded.
//
// A decode step is one CUDA graph, recorded when the session is created. The layers take five kernels each, more if a
// policy scores and selects pages in kernels of its own.
#include <algorithm>
#include <new>

#include "cuda/cuda_session.h"
#include "ops/table.h"

namespace weir::cuda {

CudaSession::~CudaSession() {
  const OnDevice on_device;
  if (cuda_queue_.stream() != nullptr) (void)cudaStreamSynchronize(cuda_queue_.stream());
  if (all_pages_ != nullptr) (void)cudaGraphExecDestroy(all_pages_);
  if (selected_ != nullptr) (void)cudaGraphExecDestroy(selected_);
  forget_joint_steps();
  cuda_queue_.destroy();
  (void)cudaGetLastError();
}

Status CudaSession::create() {
  const OnDevice on_device;
  WEIR_TRY(cuda_queue_.create());
  WEIR_TRY(prepare());
  WEIR_TRY(record(alone(false, device::kAllParts), all_pages_));
  if (a_.rules.selects) WEIR_TRY(record(alone(true, device::kAllParts), selected_));
  return {};
}

Status CudaSession::record(const SessionGroup& group, cudaGraphExec_t& out) {
  WEIR_CUDA_TRY(cudaStreamBeginCapture(cuda_queue_.stream(), cudaStreamCaptureModeThreadLocal), "recording a step");
  const Status status = enqueue_step(group);
  cudaGraph_t graph = nullptr;
  // Ends the capture in the other sessions' streams too, whether recording succeeded or not.
  const cudaError_t ended = cudaStreamEndCapture(cuda_queue_.stream(), &graph);
  if (!status.ok() || ended != cudaSuccess) {
    if (graph != nullptr) (void)cudaGraphDestroy(graph);
    if (status.ok()) return cuda_status(ended, "recording a step");
    (void)cudaGetLastError();  // clears the error of ending the capture; the error before it is the one to report
    return status;
  }
  size_t n_nodes = 0;
  const cudaError_t counted = cudaGraphGetNodes(graph, nullptr, &n_nodes);
  if (counted != cudaSuccess || n_nodes == 0) {
    (void)cudaGraphDestroy(graph);
    return cuda_status(counted, "recording a step");
  }
  const cudaError_t made = cudaGraphInstantiate(&out, graph, 0);
  (void)cudaGraphDestroy(graph);
  WEIR_CUDA_TRY(made, "making the step's graph");
  WEIR_CUDA_TRY(cudaGraphUpload(out, cuda_queue_.stream()), "uploading the step's graph");
  return wait("uploading the step's graph");
}

Status CudaSession::launch_step(bool selects) {
  WEIR_CUDA_TRY(cudaGraphLaunch(selects ? selected_ : all_pages_, cuda_queue_.stream()), "launching a step");
  return {};
}

// Attention and the selection of logits never run at the same time, so they share the memory.
uint64_t session_device_bytes(const OpShapes& shapes) {
  return std::max(attn_decode_scratch_bytes(shapes), top_logits_scratch_bytes());
}

Status create_session(void* place, const DeviceSessionArgs& args, DeviceSession*& out) {
  auto* session = new (place) CudaSession(args);
  const Status status = session->create();
  if (!status.ok()) {
    session->~CudaSession();
    return status;
  }
  out = session;
  return {};
}

}  // namespace weir::cuda
