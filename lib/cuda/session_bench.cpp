// What benchmarks need of a session on the GPU: the time of each part of a step.
#include "cuda/cuda_session.h"

namespace weir::cuda {

// Times graphs of one part each, after real steps. They write where a step writes, beyond the committed tokens.
Status CudaSession::profile_step(int32_t token, double* seconds) {
  WEIR_REQUIRE_DEVICE();
  constexpr uint32_t kRepeats = 20;
  // The timed parts append one more token after the step's, so the open page must have room.
  do {
    WEIR_TRY(step(token));
  } while (a_.host.state->n_tokens % kPageTokens == 0);
  const bool selects = selects_now();
  cudaEvent_t start = nullptr, stop = nullptr;
  WEIR_CUDA_TRY(cudaEventCreate(&start), "creating an event");
  cudaError_t error = cudaEventCreate(&stop);
  Status status;
  for (uint32_t part = 0; part < kParts && error == cudaSuccess && status.ok(); ++part) {
    seconds[part] = 0.0;
    cudaGraphExec_t graph = nullptr;
    if (part == kPartOther) continue;
    status = record(alone(selects, device::part_bit(part)), graph);
    if (!status.ok()) {
      if (graph != nullptr) (void)cudaGraphExecDestroy(graph);
      break;
    }
    if (graph == nullptr) continue;  // the step has no kernels of this part
    float ms = 0.0f;
    error = cudaGraphLaunch(graph, cuda_queue_.stream());
    if (error == cudaSuccess) error = cudaEventRecord(start, cuda_queue_.stream());
    for (uint32_t i = 0; i < kRepeats && error == cudaSuccess; ++i)
      error = cudaGraphLaunch(graph, cuda_queue_.stream());
    if (error == cudaSuccess) error = cudaEventRecord(stop, cuda_queue_.stream());
    if (error == cudaSuccess) error = cudaEventSynchronize(stop);
    if (error == cudaSuccess) error = cudaEventElapsedTime(&ms, start, stop);
    seconds[part] = ms * 1e-3 / kRepeats;
    (void)cudaGraphExecDestroy(graph);
  }
  (void)cudaEventDestroy(start);
  if (stop != nullptr) (void)cudaEventDestroy(stop);
  if (!status.ok()) return note(status);
  if (error != cudaSuccess) return note(cuda_status(error, "measuring the parts of a step"));
  return rebuild_last_digests();  // attention appended a key that is not committed
}

}  // namespace weir::cuda
