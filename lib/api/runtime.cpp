// Runtime handles.
#include "weir/runtime.h"

#include <sched.h>
#include <unistd.h>

#include "api/handles.h"

namespace weir::api {
namespace {

constexpr uint32_t kMaxThreads = 256;  // what the pool's gate word can count

// Cores that this process may use.
uint32_t usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  // The call fails on machines with more cores than the set can name.
  const long n = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : sysconf(_SC_NPROCESSORS_ONLN);
  return static_cast<uint32_t>(std::clamp<long>(n, 1, kMaxThreads));
}

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

Status create(const weir_runtime_options& o, weir_runtime** out) {
  WEIR_TRY(check_options(o));
  const AllocatorHooks hooks = {o.alloc, o.free, o.alloc_user};
  HostMemory bootstrap(hooks);
  auto* runtime = make_in<weir_runtime>(bootstrap, hooks, Log(o.log, o.log_user, o.log_level));
  try {
    runtime->devices.set_hooks({o.device_alloc, o.device_free, o.device_alloc_user});
    Status status = runtime->devices.set_folder(o.backend_dir);
    if (status.ok()) status = runtime->devices.set_vulkan_device(o.vulkan_device);
    if (status.ok()) status = runtime->pool.start(o.n_threads == 0 ? usable_cores() : o.n_threads);
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

uint32_t weir_runtime_thread_count(const weir_runtime* runtime) {
  return runtime == nullptr ? 0 : runtime->pool.n_threads();
}

const char* weir_runtime_cpu_target(const weir_runtime* runtime) {
  return runtime == nullptr ? "" : cpu_backend().target();
}
