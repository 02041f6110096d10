// The module's entry point: finds a device, moves memory, and provides the table that the library gets.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <mutex>

#include "cuda/attn/attn_stop.cuh"
#include "cuda/attn/head_size.cuh"
#include "cuda/attn/sparse_layer.cuh"
#include "cuda/common/base.cuh"
#include "cuda/common/device.cuh"
#include "cuda/matmul/gemv.cuh"
#include "cuda/ops.h"
#include "cuda/pages/page_digest.cuh"
#include "cuda/pages/page_recall.cuh"
#include "cuda/pages/page_score.cuh"
#include "cuda/recurrent/recurrent.cuh"
#include "cuda/session.h"
#include "device/kernels/sparse_layer.h"
#include "device/module.h"
#include "device_interface.h"
#include "models/model.h"
#include "ops/attn_paged.h"
#include "ops/table.h"
#include "policy/policy.h"
#include "quant/planes.h"
#include "weir/runtime.h"

namespace weir::cuda {

// Lowers `arch` to the compute capability that the loaded kernels were compiled for.
Status check_kernels(int32_t& arch);
// Whether a device of this compute capability (90: 9.0) may run them, without asking it.
bool may_have_kernels(int32_t arch);

namespace {

constexpr int kDeviceIndex = 0;  // the first device that the driver shows; CUDA_VISIBLE_DEVICES selects it

Device g_device;
char g_target[192] = "";
cudaStream_t g_stream = nullptr;

// Errors that destroy the context: every later call fails too, until the process creates a new context.
bool is_fatal(cudaError_t error) {
  switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorDevicesUnavailable:
    case cudaErrorContextIsDestroyed:
    case cudaErrorDeviceUninitialized:
    case cudaErrorUnknown:
      return true;
    default:
      return false;
  }
}

}  // namespace

const Device& device() { return g_device; }

int OnDevice::enter() {
  int was = 0;
  if (cudaGetDevice(&was) != cudaSuccess) was = kDeviceIndex;
  if (was != kDeviceIndex) (void)cudaSetDevice(kDeviceIndex);
  return was;
}

void OnDevice::leave(int was) {
  if (was != kDeviceIndex) (void)cudaSetDevice(was);
}

Status cuda_status(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return {};
  (void)cudaGetLastError();  // clears the error, if it can be cleared
  const weir_status code = is_fatal(error)                      ? WEIR_ERR_DEVICE_LOST
                           : error == cudaErrorMemoryAllocation ? WEIR_ERR_OUT_OF_MEMORY
                           : error == cudaErrorNotSupported     ? WEIR_ERR_UNSUPPORTED
                                                                : WEIR_ERR_INTERNAL;
  return fail(code, "CUDA, %s: %s (%s)", what, cudaGetErrorString(error), cudaGetErrorName(error));
}

namespace {

// Two runtimes may open the device at the same time.
std::mutex g_open_mutex;

// The driver's version, if there is a device.
Status find_driver(int& driver) {
  int count = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
    (void)cudaGetLastError();
    return fail(WEIR_ERR_UNSUPPORTED, "CUDA: there is no NVIDIA driver");
  }
  const cudaError_t counted = cudaGetDeviceCount(&count);
  if (counted == cudaErrorInsufficientDriver) {
    (void)cudaGetLastError();
    return fail(WEIR_ERR_UNSUPPORTED, "CUDA: the driver knows CUDA %d.%d, %d.%d is needed", driver / 1000,
                driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
  }
  if (counted != cudaSuccess || count == 0) {
    (void)cudaGetLastError();
    return fail(WEIR_ERR_UNSUPPORTED, "CUDA: there is no device (%s)", cudaGetErrorName(counted));
  }
  return {};
}

DeviceKind kind_of(const cudaDeviceProp& properties) {
  return properties.integrated != 0 ? DeviceKind::kIntegrated : DeviceKind::kDiscrete;
}

Status no_kernels(const cudaDeviceProp& properties) {
  return fail(WEIR_ERR_UNSUPPORTED, "CUDA: %s has compute capability %d.%d, which this build has no kernels for",
              properties.name, properties.major, properties.minor);
}

// Neither call makes a context, which takes time and some hundred MB of the device.
Status list(ListedDevice* devices, uint32_t& n) {
  n = 0;
  int driver = 0;
  WEIR_TRY(find_driver(driver));
  cudaDeviceProp properties;
  WEIR_CUDA_TRY(cudaGetDeviceProperties(&properties, kDeviceIndex), "reading the device");
  ListedDevice& d = devices[0] = {};
  std::snprintf(d.name, sizeof(d.name), "%.255s", properties.name);
  std::snprintf(d.driver, sizeof(d.driver), "CUDA %d.%d", driver / 1000, driver % 1000 / 10);
  d.total_bytes = properties.totalGlobalMem;
  d.kind = kind_of(properties);
  if (!may_have_kernels(properties.major * 10 + properties.minor) && !no_kernels(properties).ok())
    std::snprintf(d.why_not, sizeof(d.why_not), "%.511s", last_error_text());
  n = 1;
  return {};
}

Status open(uint32_t which) {
  const std::lock_guard lock(g_open_mutex);
  if (which != kDeviceIndex) {
    return fail(WEIR_ERR_UNSUPPORTED, "CUDA: device %u; only device %d is used, which CUDA_VISIBLE_DEVICES selects",
                which, kDeviceIndex);
  }
  if (g_stream != nullptr) return {};
  int driver = 0;
  WEIR_TRY(find_driver(driver));
  const OnDevice on_device;
  cudaDeviceProp properties;
  WEIR_CUDA_TRY(cudaGetDeviceProperties(&properties, kDeviceIndex), "reading the device");
  g_device.n_processors = static_cast<uint32_t>(properties.multiProcessorCount);
  g_device.shared_bytes = properties.sharedMemPerBlockOptin;
  g_device.arch = properties.major * 10 + properties.minor;
  if (!check_kernels(g_device.arch).ok()) return no_kernels(properties);
  std::snprintf(g_target, sizeof(g_target), "%.100s, sm_%d, CUDA %d.%d", properties.name, g_device.arch, driver / 1000,
                driver % 1000 / 10);
  WEIR_CUDA_TRY(cudaStreamCreateWithFlags(&g_stream, cudaStreamNonBlocking), "creating a stream");
  return {};
}

Status info(DeviceInfo& out) {
  const OnDevice on_device;
  cudaDeviceProp properties;
  WEIR_CUDA_TRY(cudaGetDeviceProperties(&properties, kDeviceIndex), "reading the device");
  size_t free_bytes = 0, total = 0;
  WEIR_CUDA_TRY(cudaMemGetInfo(&free_bytes, &total), "asking for free memory");
  int driver = 0;
  WEIR_CUDA_TRY(cudaDriverGetVersion(&driver), "asking for the driver's version");
  std::snprintf(out.name, sizeof(out.name), "%.127s", properties.name);
  std::snprintf(out.arch, sizeof(out.arch), "sm_%d", g_device.arch);
  std::snprintf(out.driver, sizeof(out.driver), "CUDA %d.%d", driver / 1000, driver % 1000 / 10);
  out.total_bytes = total;
  out.free_bytes = free_bytes;
  out.max_bytes = total;
  out.max_staging_bytes = UINT64_MAX;
  out.n_processors = g_device.n_processors;
  out.index = kDeviceIndex;
  out.kind = kind_of(properties);
  return {};
}

Status allocate(uint64_t bytes, void** out) {
  const OnDevice on_device;
  WEIR_CUDA_TRY(cudaMalloc(out, bytes), "allocating device memory");
  return {};
}

Status release(void* device) {
  const OnDevice on_device;
  WEIR_CUDA_TRY(cudaFree(device), "freeing device memory");
  return {};
}

// `memory` may be the application's hooks, which run with the application's current device.
cudaError_t pin(void* host, uint64_t bytes) {
  const OnDevice on_device;
  return cudaHostRegister(host, bytes, cudaHostRegisterMapped | cudaHostRegisterPortable);
}

cudaError_t unpin(void* host) {
  const OnDevice on_device;
  return cudaHostUnregister(host);
}

Status allocate_staging(std::pmr::memory_resource& memory, uint64_t bytes, void** out) {
  *out = nullptr;
  void* const host = memory.allocate(bytes, kStagingAlignment);
  const cudaError_t pinned = pin(host, bytes);
  if (pinned != cudaSuccess) {
    memory.deallocate(host, bytes, kStagingAlignment);
    return cuda_status(pinned, "pinning host memory");
  }
  *out = host;
  return {};
}

Status release_staging(std::pmr::memory_resource& memory, void* staging, uint64_t bytes) {
  const cudaError_t unpinned = unpin(staging);
  memory.deallocate(staging, bytes, kStagingAlignment);
  WEIR_CUDA_TRY(unpinned, "unpinning host memory");
  return {};
}

Status copy_in(void* to, const void* from, uint64_t bytes) {
  const OnDevice on_device;
  WEIR_CUDA_TRY(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, g_stream), "copying to the device");
  WEIR_CUDA_TRY(cudaStreamSynchronize(g_stream), "copying to the device");
  return {};
}

Status copy_out(void* to, const void* from, uint64_t bytes) {
  const OnDevice on_device;
  WEIR_CUDA_TRY(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, g_stream), "copying from the device");
  WEIR_CUDA_TRY(cudaStreamSynchronize(g_stream), "copying from the device");
  return {};
}

Status copy(void* to, const void* from, uint64_t bytes) {
  const OnDevice on_device;
  WEIR_CUDA_TRY(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, g_stream), "copying on the device");
  WEIR_CUDA_TRY(cudaStreamSynchronize(g_stream), "copying on the device");
  return {};
}

Status enqueue_copy_in(void* to, const void* host, uint64_t bytes) {
  const OnDevice on_device;
  return cuda_status(cudaMemcpyAsync(to, host, bytes, cudaMemcpyHostToDevice, g_stream), "copying rows");
}

Status enqueue_copy_out(void* host, const void* from, uint64_t bytes) {
  const OnDevice on_device;
  return cuda_status(cudaMemcpyAsync(host, from, bytes, cudaMemcpyDeviceToHost, g_stream), "copying rows");
}

Status wait() {
  const OnDevice on_device;
  return cuda_status(cudaStreamSynchronize(g_stream), "waiting for the device");
}

Status fill(void* to, uint8_t value, uint64_t bytes) {
  const OnDevice on_device;
  WEIR_CUDA_TRY(cudaMemsetAsync(to, value, bytes, g_stream), "filling device memory");
  WEIR_CUDA_TRY(cudaStreamSynchronize(g_stream), "filling device memory");
  return {};
}

Status copy_rate(void* from, void* to, uint64_t bytes, double* rate) {
  const OnDevice on_device;
  cudaEvent_t start = nullptr, stop = nullptr;
  WEIR_CUDA_TRY(cudaEventCreate(&start), "creating an event");
  if (const cudaError_t error = cudaEventCreate(&stop); error != cudaSuccess) {
    (void)cudaEventDestroy(start);
    return cuda_status(error, "creating an event");
  }
  float best_ms = 0.0f;
  cudaError_t error = cudaSuccess;
  for (uint32_t i = 0; i < 8 && error == cudaSuccess; ++i) {
    float ms = 0.0f;
    error = cudaEventRecord(start, g_stream);
    if (error == cudaSuccess) error = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, g_stream);
    if (error == cudaSuccess) error = cudaEventRecord(stop, g_stream);
    if (error == cudaSuccess) error = cudaEventSynchronize(stop);
    if (error == cudaSuccess) error = cudaEventElapsedTime(&ms, start, stop);
    if (i > 0 && (best_ms == 0.0f || ms < best_ms)) best_ms = ms;
  }
  (void)cudaEventDestroy(start);
  (void)cudaEventDestroy(stop);
  if (error != cudaSuccess) return cuda_status(error, "measuring a copy");
  *rate = best_ms > 0.0f ? 2.0 * static_cast<double>(bytes) / (best_ms * 1e-3) : 0.0;
  return {};
}

void* stream() { return g_stream; }

Status check_weight(const Weight& w) {
  WEIR_TRY(check_planes(w));
  if (w.n_cols <= gemv_max_cols(w.type)) return {};
  return fail(WEIR_ERR_UNSUPPORTED, "a matrix of %u columns: at most %u fit into this device's shared memory", w.n_cols,
              gemv_max_cols(w.type));
}

// Whether one launch per layer has the session's attention that stops by itself.
bool stops_in_one_launch(const ModelConfig& c, const PolicyNeeds& needs, const StepRules& rules) {
  SparseLayerArgs a = {};
  AttnPagedArgs& attn = a.attn.attn;
  a.attn.append = true;
  a.select.agg = rules.agg;
  a.stop.microbatch = rules.stop_microbatch;
  attn.n_heads = c.n_heads;
  attn.soft_cap = c.attn_soft_cap;
  attn.kv.n_kv_heads = c.n_kv_heads;
  attn.kv.head_dim = c.head_dim;
  attn.kv.capacity = needs.pages_per_stream;
  attn.kv.digest = needs.digest;
  return !rules.stop_by_bounds && !needs.page_mass && !needs.head_windows && has_sparse_layer(a);
}

Status check_stop(const ModelConfig& c, const PolicyNeeds& needs, const StepRules& rules) {
  const uint32_t group = c.n_heads / c.n_kv_heads, pages = needs.pages_per_stream;
  if (stops_in_one_launch(c, needs, rules) || has_attn_stop(group, c.head_dim, pages)) return {};
  return fail(WEIR_ERR_UNSUPPORTED,
              "CUDA: attention that stops by itself needs groups of up to 32 query heads and a table that fits into "
              "shared memory; here are groups of %u, and %u pages a stream, which need %zu of %zu bytes",
              group, pages, attn_stop_shared_bytes(group, c.head_dim, pages), device().shared_bytes);
}

Status check_session(const ModelConfig& c, const PolicyNeeds& needs, const StepRules& rules) {
  if (!is_head_dim(c.head_dim)) {
    return fail(WEIR_ERR_UNSUPPORTED, "CUDA: heads of %u elements; multiples of 8 up to %u are needed", c.head_dim,
                kMaxHeadDim);
  }
  if (c.d_model % 32 != 0 || c.d_ff % 32 != 0)
    return fail(WEIR_ERR_UNSUPPORTED, "CUDA: sizes %u and %u; multiples of 32 are needed", c.d_model, c.d_ff);
  if (c.n_experts != 0 && (c.expert_ff % 32 != 0 || c.shared_ff % 32 != 0)) {
    return fail(WEIR_ERR_UNSUPPORTED, "CUDA: experts of sizes %u and %u; multiples of 32 are needed", c.expert_ff,
                c.shared_ff);
  }
  if (c.recurrent.width % 32 != 0) {
    return fail(WEIR_ERR_UNSUPPORTED, "CUDA: recurrent layers of %u outputs; multiples of 32 are needed",
                c.recurrent.width);
  }
  // The down matrices of a step read what all chosen experts gave as one input. f32 takes the most room of all types.
  if (c.n_experts != 0 && uint64_t{c.n_experts_used} * c.expert_ff > gemv_max_cols(WeightType::kF32) / 2) {
    return fail(WEIR_ERR_UNSUPPORTED,
                "CUDA: %u experts of %u for each token do not fit into the device's shared memory", c.n_experts_used,
                c.expert_ff);
  }
  const RecurrentShape& r = c.recurrent;
  if (r.n_heads != 0 && !has_recurrent_kernels(r.key_dim, r.value_dim, r.n_taps)) {
    return fail(
        WEIR_ERR_UNSUPPORTED,
        "CUDA: recurrent layers with sums of %u x %u a head and %u taps; multiples of 4 up to %u x %u and up to "
        "%u taps are needed",
        r.key_dim, r.value_dim, r.n_taps, kMaxKeyDim, kMaxValueDim, kMaxTaps);
  }
  const size_t recall_bytes =
      rules.recalls ? page_recall_shared_bytes(rules, needs.recall_slots, needs.pages_per_stream) : 0;
  if (recall_bytes > device().shared_bytes) {
    return fail(WEIR_ERR_UNSUPPORTED,
                "CUDA: recall into a pool of %u tokens a stream needs %zu bytes of shared memory, the device has %zu",
                needs.recall_slots * kPageTokens, recall_bytes, device().shared_bytes);
  }
  if (rules.stop_microbatch != 0) WEIR_TRY(check_stop(c, needs, rules));
  // One counter per page list, and every query head may have a list of its own.
  if (c.n_heads > DeviceBuffers::kCounters / 2) {
    return fail(WEIR_ERR_UNSUPPORTED, "CUDA: %u heads; %u are the most", c.n_heads, DeviceBuffers::kCounters / 2);
  }
  return {};
}

uint64_t scratch_bytes(const OpShapes& shapes) {
  return std::max({matmul_scratch_bytes(shapes), attn_scratch_bytes(shapes), page_select_scratch_bytes(shapes),
                   experts_scratch_bytes(shapes), uint64_t{256}});
}

const char* target() { return g_target; }

constexpr Backend kBackend = {
    "cuda",
    WEIR_DEVICE_CUDA,
    {
#define WEIR_OP(name, Args)                       \
  [](OpContext& cx, const Args& a) {              \
    const OnDevice on_device; /* in any thread */ \
    return cuda::name(cx, a);                     \
  },
#include "ops/ops.inc"
#undef WEIR_OP
    },
    scratch_bytes,
    target,
    TraitSet(Trait::kQkvBias, Trait::kQkNorm, Trait::kPostNorm, Trait::kGeluGate, Trait::kEmbeddingScale,
             Trait::kWindow, Trait::kLayerRope, Trait::kAttnSoftCap, Trait::kLogitSoftCap, Trait::kTemperature,
             Trait::kAttnSinks, Trait::kOutBias, Trait::kGluBias, Trait::kClampedGate, Trait::kQkRowNorm,
             Trait::kNoNorm, Trait::kExperts, Trait::kReluGate, Trait::kHeadGate, Trait::kDeltaNet, Trait::kMamba2,
             Trait::kShortConv),
    RuleSet::all(),
    kAllKvFormats & ~format_bit(KvFormat::kK4V4),
};

}  // namespace

const OpTable& op_table() { return kBackend.ops; }

namespace {

constexpr DeviceModule kModule = {
    .interface = kDeviceInterface,
    .session_bytes = static_cast<uint32_t>(session_bytes()),
    .backend = &kBackend,
    .open = open,
    .info = info,
    .last_error = last_error_text,
    .allocate = allocate,
    .release = release,
    .allocate_staging = allocate_staging,
    .release_staging = release_staging,
    .own_staging = false,
    .copy_in = copy_in,
    .copy_out = copy_out,
    .copy = copy,
    .enqueue_copy_in = enqueue_copy_in,
    .enqueue_copy_out = enqueue_copy_out,
    .wait = wait,
    .fill = fill,
    .stream = stream,
    .copy_rate = copy_rate,
    .check_weight = check_weight,
    .check_session = check_session,
    .session_device_bytes = session_device_bytes,
    .create_session = create_session,
    .prepare_many = prepare_many,
    .step_many = step_many,
    .choose = nullptr,
    .list = list,
    .use_cache = nullptr,
    .keep_cache = nullptr,
};

}  // namespace
}  // namespace weir::cuda

extern "C" __attribute__((visibility("default"))) const weir::DeviceModule* weir_device_module(uint32_t version) {
  return version == weir::kDeviceInterface ? &weir::cuda::kModule : nullptr;
}
