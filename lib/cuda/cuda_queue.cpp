// Copies, waiting and branches of a session's stream.
#include "cuda/cuda_queue.h"

namespace weir::cuda {

void CudaQueue::destroy() {
  if (event_ != nullptr) (void)cudaEventDestroy(event_);
  if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
}

Status CudaQueue::create() {
  WEIR_CUDA_TRY(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "creating the session's stream");
  cx_.stream = stream_;
  WEIR_CUDA_TRY(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "creating the session's event");
  return {};
}

Status CudaQueue::copy_in(void* to, const void* from, size_t bytes, const char* what) {
  WEIR_CUDA_TRY(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_), what);
  return {};
}

Status CudaQueue::copy_out(void* to, const void* from, size_t bytes, const char* what) {
  WEIR_CUDA_TRY(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_), what);
  return {};
}

Status CudaQueue::clear(void* to, size_t bytes, const char* what) {
  WEIR_CUDA_TRY(cudaMemsetAsync(to, 0, bytes, stream_), what);
  return {};
}

Status CudaQueue::wait(const char* what) {
  const cudaError_t error = cudaStreamSynchronize(stream_);
  return error == cudaSuccess ? Status() : lost(error, what);
}

Status CudaQueue::lost(cudaError_t error, const char* what) {
  const Status status = cuda_status(error, what);
  if (status.code() == WEIR_ERR_DEVICE_LOST) return status;
  return fail(WEIR_ERR_DEVICE_LOST, "CUDA, %s: %s (%s)", what, cudaGetErrorString(error), cudaGetErrorName(error));
}

Status CudaQueue::begin_branches() {
  WEIR_CUDA_TRY(cudaEventRecord(event_, stream_), "recording a branch");
  return {};
}

// Queues of one module are of one class.
Status CudaQueue::begin_branch(Queue& branch) {
  WEIR_CUDA_TRY(cudaStreamWaitEvent(static_cast<CudaQueue&>(branch).stream_, event_, 0), "recording a branch");
  return {};
}

Status CudaQueue::end_branch(Queue& branch) {
  auto& other = static_cast<CudaQueue&>(branch);
  WEIR_CUDA_TRY(cudaEventRecord(other.event_, other.stream_), "recording a branch's end");
  WEIR_CUDA_TRY(cudaStreamWaitEvent(stream_, other.event_, 0), "recording a branch's end");
  return {};
}

Status CudaQueue::map_staging(void* host, void** out) {
  WEIR_CUDA_TRY(cudaHostGetDevicePointer(out, host, 0), "mapping staging memory");
  return {};
}

int CudaQueue::enter() { return OnDevice::enter(); }
void CudaQueue::leave(int before) { OnDevice::leave(before); }

}  // namespace weir::cuda
