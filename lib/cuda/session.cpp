// Creation of a session on the GPU, the copies of its page tables, and its single steps.
//
// A decode step is one CUDA graph, recorded when the session is created. It updates the page tables (evictions, new
// pages), runs the layers in five kernels each (more if a policy scores and selects pages in kernels of its own), and
// ends with the greedy token. The host writes the input token to memory that the device can read, launches the graph
// and waits. Positions, page counts and budgets are read on the device.
#include "cuda/cuda_session.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "cuda/attn/attn_decode.cuh"
#include "cuda/step/top_logits.cuh"

namespace weir::cuda {
CudaSession::~CudaSession() {
  const OnDevice on_device;
  if (stream_ != nullptr) (void)cudaStreamSynchronize(stream_);
  if (all_pages_ != nullptr) (void)cudaGraphExecDestroy(all_pages_);
  if (selected_ != nullptr) (void)cudaGraphExecDestroy(selected_);
  for (const JointGraph& joint : joint_) {
    if (joint.exec != nullptr) (void)cudaGraphExecDestroy(joint.exec);
  }
  if (event_ != nullptr) (void)cudaEventDestroy(event_);
  if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
  (void)cudaGetLastError();
}

Status CudaSession::create() {
  const OnDevice on_device;
  WEIR_CUDA_TRY(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "creating the session's stream");
  a_.cx.stream = stream_;
  WEIR_CUDA_TRY(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "creating the session's event");
  WEIR_TRY(map(a_.host.state, mailbox_));
  WEIR_TRY(map(a_.host.tokens, token_));
  WEIR_TRY(map(a_.host.events.events, events_));
  WEIR_TRY(map(a_.host.top_ids, top_ids_));
  WEIR_TRY(map(a_.host.top_logits, top_logits_));

  if (recalls()) WEIR_TRY(map_recall());

  const RopeTable& rope = *a_.rope;
  std::memcpy(a_.host.angles, rope.angles().data(), rope.angles().size() * sizeof(double));
  WEIR_CUDA_TRY(cudaMemcpyAsync(a_.device.angles, a_.host.angles, rope.angles().size() * sizeof(double),
                                cudaMemcpyHostToDevice, stream_),
                "copying rotations");
  WEIR_CUDA_TRY(cudaMemsetAsync(a_.device.counters, 0, DeviceBuffers::kCounters * sizeof(uint32_t), stream_),
                "clearing counters");
  WEIR_TRY(wait("preparing the session"));
  WEIR_TRY(record(alone(false, kAllParts), all_pages_));
  if (a_.rules.selects) WEIR_TRY(record(alone(true, kAllParts), selected_));
  return {};
}

Status CudaSession::note(Status status) {
  if (status.code() == WEIR_ERR_DEVICE_LOST) lost_ = true;
  return status;
}

Status CudaSession::wait(const char* what) {
  const cudaError_t error = cudaStreamSynchronize(stream_);
  return error == cudaSuccess ? Status() : lose(error, what);
}

// Whatever the error is, the amount of work that was done is unknown.
Status CudaSession::lose(cudaError_t error, const char* what) {
  lost_ = true;
  const Status status = cuda_status(error, what);
  if (status.code() == WEIR_ERR_DEVICE_LOST) return status;
  return fail(WEIR_ERR_DEVICE_LOST, "CUDA, %s: %s (%s)", what, cudaGetErrorString(error), cudaGetErrorName(error));
}

// -------------------------------------------------------------------------------------------------------------- tables

Status CudaSession::copy_tables(bool in) {
  std::byte* host = a_.host.tables;
  std::byte* device = a_.device.tables;
  const uint64_t bytes = a_.device.table_bytes;
  if (in) {
    WEIR_CUDA_TRY(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream_),
                  "copying page tables to the device");
    WEIR_CUDA_TRY(cudaMemcpyAsync(a_.device.state, a_.host.state, sizeof(StepState), cudaMemcpyHostToDevice, stream_),
                  "copying the state");
  } else {
    WEIR_CUDA_TRY(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream_),
                  "copying page tables from the device");
    WEIR_CUDA_TRY(cudaMemcpyAsync(a_.host.state, a_.device.state, sizeof(StepState), cudaMemcpyDeviceToHost, stream_),
                  "copying the state");
  }
  return wait("copying page tables");
}

Status CudaSession::put_tables(bool repeats) {
  WEIR_REQUIRE_DEVICE();
  // The host's tables have the same layout as the device's.
  const KvTables tables = a_.kv->tables();
  const auto host = [&](const uint32_t* device) {
    return reinterpret_cast<const uint32_t*>(a_.host.tables +
                                             (reinterpret_cast<const std::byte*>(device) - a_.device.tables));
  };
  n_pages_ = n_prompt_pages_ = 0;
  n_filled_ = (a_.host.state->n_tokens + kPageTokens - 1) / kPageTokens;
  for (uint32_t layer = 0; layer < tables.n_layers; ++layer) {
    if (!is_ruled(layers()[layer].attention)) continue;
    // Counted in the layer's first stream, which stands for the layer.
    const uint32_t* flags = host(a_.kv->flags(layer));
    const uint32_t n = host(tables.n_pages)[layer * tables.n_kv_heads];
    uint32_t n_prompt = 0;
    for (uint32_t row = 0; row < n; ++row) n_prompt += (flags[row] & kPagePrompt) != 0 ? 1u : 0u;
    n_prompt_pages_ = std::max(n_prompt_pages_, n_prompt);
    n_pages_ = std::max(n_pages_, n);
  }
  WEIR_TRY(note(copy_tables(true)));
  if (!recalls()) return {};
  const KvView kv = a_.kv->view(0);
  raw_index_is_behind_ = true;
  WEIR_TRY(note(put_raw_index()));
  WEIR_TRY(note(mark_resident(a_.cx, tables, a_.device.resident, a_.kv->shape().max_capacity())));
  if (a_.host.state->pages_lost != 0)
    WEIR_TRY(note(spoil_lost(a_.cx, {tables, a_.device.raw_index, kv.digests,
                                     static_cast<uint32_t>(digest_elements(kv.digest, kv.head_dim))})));
  if (!repeats) {
    WEIR_TRY(note(cuda_status(cudaMemsetAsync(heads_, 0, a_.kv->shape().n_streams() * sizeof(RecallHead), stream_),
                              "clearing the journal")));
  }
  return note(wait("copying page tables"));
}

Status CudaSession::get_tables() {
  WEIR_REQUIRE_DEVICE();
  return note(copy_tables(false));
}

// -------------------------------------------------------------------------------------------------------- decode steps

Status CudaSession::record(const SessionGroup& group, cudaGraphExec_t& out) {
  WEIR_CUDA_TRY(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "recording a step");
  const Status status = enqueue_step(group);
  cudaGraph_t graph = nullptr;
  // Ends the capture in the other sessions' streams too, whether recording succeeded or not.
  const cudaError_t ended = cudaStreamEndCapture(stream_, &graph);
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
  WEIR_CUDA_TRY(cudaGraphUpload(out, stream_), "uploading the step's graph");
  return wait("uploading the step's graph");
}

Status CudaSession::step(int32_t token) {
  WEIR_REQUIRE_DEVICE();
  const bool selects = selects_now();
  a_.host.tokens[0] = token;
  open_posts();
  if (recalls()) WEIR_TRY(note(put_raw_index()));
  WEIR_TRY(note(cuda_status(cudaGraphLaunch(selects ? selected_ : all_pages_, stream_), "launching a step")));
  WEIR_TRY(note(selects && recalls() ? wait_and_answer(alone(true, kAllParts)) : wait("a decode step")));
  return check_room();
}

Status CudaSession::check_room() {
  if (a_.host.state->n_without_room == 0) return {};
  lost_ = true;
  return fail(WEIR_ERR_INTERNAL, "%u streams had no room for the step's token: the policy's rules let no page leave",
              a_.host.state->n_without_room);
}

Status CudaSession::get_logits() {
  WEIR_REQUIRE_DEVICE();
  const size_t bytes = a_.config->vocab_size * sizeof(float);
  WEIR_TRY(note(cuda_status(cudaMemcpyAsync(a_.host.logits, a_.b.logits, bytes, cudaMemcpyDeviceToHost, stream_),
                            "copying logits")));
  return note(wait("copying logits"));
}

Status CudaSession::top_logits(uint32_t n) {
  WEIR_REQUIRE_DEVICE();
  WEIR_TRY(note(cuda::top_logits(a_.cx, {a_.b.logits, a_.config->vocab_size, n, top_ids_, top_logits_, a_.device.module,
                                         a_.device.counters + kTopCounter})));
  return note(wait("choosing the best logits"));
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
