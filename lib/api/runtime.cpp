// Runtime handles.
#include "weir/runtime.h"

#include <iterator>

#include "api/handles.h"
#include "core/machine_limits.h"
#include "core/plain_text.h"
#include "cpu/backend.h"

namespace weir::api {
namespace {

constexpr uint32_t kMaxThreads = 256;  // what the pool's gate word can count

Status check_options(const weir_runtime_options& o) {
  if (o.n_threads > kMaxThreads)
    return fail(WEIR_ERR_INVALID_ARG, "n_threads: %u is above %u", o.n_threads, kMaxThreads);
  if ((o.alloc == nullptr) != (o.free == nullptr))
    return fail(WEIR_ERR_INVALID_ARG, "alloc and free: set both hooks or neither");
  if ((o.device_alloc == nullptr) != (o.device_free == nullptr))
    return fail(WEIR_ERR_INVALID_ARG, "device_alloc and device_free: set both hooks or neither");
  if (o.log_level < WEIR_LOG_ERROR || o.log_level > WEIR_LOG_DEBUG)
    return fail(WEIR_ERR_INVALID_ARG, "log_level: %d is not a WEIR_LOG_* value", o.log_level);
  if (o.reserved != 0) return fail(WEIR_ERR_UNSUPPORTED, "runtime options: reserved is %u, not 0", o.reserved);
  return {};
}

// The runtime lives in memory of its own hooks; a HostMemory on the stack takes and gives back that first block.
void destroy(weir_runtime* runtime) {
  const AllocatorHooks hooks = runtime->memory.hooks();
  HostMemory bootstrap(hooks);
  runtime->~weir_runtime();
  bootstrap.deallocate(runtime, sizeof(weir_runtime), alignof(weir_runtime));
}

// A folder that cannot be found costs time and a line, as one that cannot be read does.
Status use_cache_folder(weir_runtime& runtime, const char* folder) {
  Status status = runtime.devices.set_cache_folder(folder);
  if (status.code() != WEIR_ERR_IO) return status;
  runtime.log.write(WEIR_LOG_WARNING, "%s; nothing is kept there", last_error_text());
  return {};
}

Status create(const weir_runtime_options& o, weir_runtime** out) {
  WEIR_TRY(check_options(o));
  const AllocatorHooks hooks = {o.alloc, o.free, o.alloc_user};
  HostMemory bootstrap(hooks);
  auto* runtime = make_in<weir_runtime>(bootstrap, hooks, Log(o.log, o.log_user, o.log_level));
  try {
    runtime->devices.set_hooks({o.device_alloc, o.device_free, o.device_alloc_user});
    Status status = runtime->devices.set_folder(o.backend_dir);
    if (status.ok()) status = runtime->devices.set_vulkan_device(o.vulkan_device);
    if (status.ok()) status = use_cache_folder(*runtime, o.cache_dir);
    if (status.ok())
      status = runtime->pool.start(o.n_threads == 0 ? std::min(machine_threads(), kMaxThreads) : o.n_threads);
    if (!status.ok()) {
      destroy(runtime);
      return status;
    }
  } catch (...) {
    destroy(runtime);
    throw;
  }
  runtime->log.write(WEIR_LOG_INFO, "weir %s: %u threads, %s", weir_version_string(), runtime->pool.n_threads(),
                     cpu_backend().target());
  *out = runtime;
  return {};
}

constexpr struct {
  int32_t device;
  const char* name;
} kDriven[] = {{WEIR_DEVICE_CUDA, "cuda"}, {WEIR_DEVICE_VULKAN, "vulkan"}};
constexpr uint32_t kMaxInfos = 1 + static_cast<uint32_t>(std::size(kDriven)) * kMaxListed;

weir_device_info processor() {
  weir_device_info info = WEIR_DEVICE_INFO_INIT;
  info.backend = WEIR_DEVICE_CPU;
  info.kind = WEIR_DEVICE_KIND_CPU;
  info.is_usable = 1;
  if (const uint64_t bytes = machine_memory_bytes(); bytes != kNoLimit) info.memory_bytes = bytes;
  std::memcpy(info.name, "CPU", sizeof("CPU"));
  (void)plain_text(cpu_backend().target(), info.driver, sizeof(info.driver));
  return info;
}

weir_device_info info_of(const ListedDevice& d, int32_t backend, uint32_t index) {
  weir_device_info info = WEIR_DEVICE_INFO_INIT;
  info.index = index;
  info.backend = backend;
  info.kind = static_cast<int32_t>(d.kind);
  info.is_usable = d.why_not[0] == '\0' ? 1 : 0;
  info.memory_bytes = d.total_bytes;
  (void)plain_text(d.name, info.name, sizeof(info.name));
  (void)plain_text(d.driver, info.driver, sizeof(info.driver));
  (void)plain_text(d.why_not, info.why_not, sizeof(info.why_not));
  return info;
}

uint32_t list_devices(const weir_runtime& runtime, weir_device_info* out) {
  uint32_t n = 0;
  out[n++] = processor();
  for (const auto& driven : kDriven) {
    ListedDevice devices[kMaxListed];
    uint32_t n_listed = 0;
    if (const Status status = runtime.devices.list(driven.device, devices, n_listed); !status.ok())
      runtime.log.write(WEIR_LOG_INFO, "device %s: %s", driven.name, last_error_text());
    for (uint32_t i = 0; i < n_listed; ++i) out[n++] = info_of(devices[i], driven.device, i);
  }
  return n;
}

static_assert(static_cast<int32_t>(DeviceKind::kDiscrete) == WEIR_DEVICE_KIND_DISCRETE);
static_assert(static_cast<int32_t>(DeviceKind::kIntegrated) == WEIR_DEVICE_KIND_INTEGRATED);
static_assert(static_cast<int32_t>(DeviceKind::kVirtual) == WEIR_DEVICE_KIND_VIRTUAL);
static_assert(static_cast<int32_t>(DeviceKind::kCpu) == WEIR_DEVICE_KIND_CPU);

// Entries of the caller's size, each with it.
void write_list(const weir_device_info* from, uint32_t n, weir_device_info* to) {
  const uint32_t size = to->struct_size;
  auto* at = reinterpret_cast<unsigned char*>(to);
  for (uint32_t i = 0; i < n; ++i, at += size) {
    std::memset(at, 0, size);  // fields that this version does not know
    std::memcpy(at, &from[i], std::min<size_t>(size, sizeof(from[i])));
    std::memcpy(at, &size, sizeof(size));
  }
}

}  // namespace

void retain(weir_runtime* runtime) { runtime->n_refs.fetch_add(1, std::memory_order_relaxed); }

void release(weir_runtime* runtime) {
  if (runtime->n_refs.fetch_sub(1, std::memory_order_acq_rel) == 1) destroy(runtime);
}

}  // namespace weir::api

using namespace weir;

weir_status weir_runtime_options_init(weir_runtime_options* options, uint32_t struct_size) {
  WEIR_API_REQUIRE(options);
  if (struct_size < 8)
    return fail(WEIR_ERR_INVALID_ARG, "weir_runtime_options_init: struct_size is %u", struct_size).code();
  std::memset(options, 0, struct_size);
  options->struct_size = struct_size;
  return WEIR_OK;
}

weir_status weir_runtime_create(const weir_runtime_options* options, weir_runtime** out) {
  WEIR_API_REQUIRE(out);
  *out = nullptr;
  return api::guard([&]() -> Status {
    weir_runtime_options read;
    WEIR_TRY(api::read_struct(options, "weir_runtime_options", read));
    return api::create(read, out);
  });
}

void weir_runtime_destroy(weir_runtime* runtime) {
  if (runtime == nullptr) return;
  const Call call;
  api::release(runtime);
}

weir_status weir_runtime_memory(const weir_runtime* runtime, weir_memory_counters* counters) {
  WEIR_API_REQUIRE(runtime);
  return api::guard([&]() -> Status {
    WEIR_TRY(api::check_out_struct(counters, "weir_memory_counters"));
    weir_memory_counters value = WEIR_MEMORY_COUNTERS_INIT;
    value.bytes = runtime->memory.bytes();
    value.peak_bytes = runtime->memory.peak_bytes();
    value.n_allocs = runtime->memory.n_allocs();
    value.n_frees = runtime->memory.n_frees();
    value.device_bytes = runtime->devices.bytes();
    value.device_peak_bytes = runtime->devices.peak_bytes();
    value.n_device_allocs = runtime->devices.n_allocs();
    value.n_device_frees = runtime->devices.n_frees();
    api::write_struct(value, counters);
    return {};
  });
}

weir_status weir_runtime_devices(const weir_runtime* runtime, weir_device_info* devices, uint32_t capacity,
                                 uint32_t* n_devices) {
  WEIR_API_REQUIRE(runtime);
  WEIR_API_REQUIRE(n_devices);
  if (capacity != 0) WEIR_API_REQUIRE(devices);
  return api::guard([&]() -> Status {
    if (capacity != 0) {
      WEIR_TRY(api::check_out_struct(devices, "weir_device_info"));
      if (devices->struct_size % alignof(weir_device_info) != 0) {
        return fail(WEIR_ERR_INVALID_ARG, "weir_device_info: struct_size is %u; set it to sizeof the struct",
                    devices->struct_size);
      }
    }
    weir_device_info list[api::kMaxInfos];
    const uint32_t n = api::list_devices(*runtime, list);
    *n_devices = n;
    if (capacity < n) return fail(WEIR_ERR_BUFFER_TOO_SMALL, "%u devices, room for %u", n, capacity);
    api::write_list(list, n, devices);
    return {};
  });
}

uint32_t weir_runtime_thread_count(const weir_runtime* runtime) {
  return runtime == nullptr ? 0 : runtime->pool.n_threads();
}

const char* weir_runtime_cpu_target(const weir_runtime* runtime) {
  return runtime == nullptr ? "" : cpu_backend().target();
}
