// Loading of backend modules, and device memory.
#include "runtime/device_host.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <new>

#include "core/paths.h"
#include "device_interface.h"
#include "ops/table.h"
#include "runtime/device_module.h"

namespace weir {
namespace {

constexpr uint64_t kDeviceAlignment = 256;  // of all device memory that hooks are asked for

// The modules that there may be: lib<name>.so for WEIR_DEVICE_*.
constexpr struct {
  int32_t device;
  const char* name;
} kModules[] = {{WEIR_DEVICE_CUDA, "weir_cuda"}, {WEIR_DEVICE_VULKAN, "weir_vulkan"}};

}  // namespace

Status from_module(const DeviceModule& module, Status status) {
  return status.ok() ? status : fail(status.code(), "%s", module.last_error());
}

Status find_device_module(const char* folder, const char* name, const DeviceModule*& out) {
  char base[kMaxPathBytes + 1], path[kMaxPathBytes + 64];  // room for a slash, and for a name
  if (folder != nullptr && folder[0] != '\0') {
    std::snprintf(base, sizeof(base), "%s/", folder);
  } else {
    WEIR_TRY(folder_of_code(reinterpret_cast<const void*>(&from_module), base, sizeof(base)));
  }
  // Absolute, always: a bare name would be looked for wherever the process's environment says.
  std::snprintf(path, sizeof(path), "%slib%s.so", base, name);
  // The dynamic linker counts references and returns the same module again.
  void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return fail(WEIR_ERR_UNSUPPORTED, "no backend module: %.512s", dlerror());
  const auto get = reinterpret_cast<device_module_fn>(dlsym(handle, kDeviceModuleSymbol));
  const DeviceModule* module = get == nullptr ? nullptr : get(kDeviceInterface);
  if (module == nullptr || module->interface != kDeviceInterface) {
    dlclose(handle);
    return fail(WEIR_ERR_UNSUPPORTED, "lib%s.so is not a backend module of this build: %.300s", name, path);
  }
  out = module;
  return {};
}

// Where no device can be opened the module stays loaded all the same: unloading a driver is not safe.
Status load_device_module(const char* folder, const char* name, uint32_t which, const DeviceModule*& out) {
  const DeviceModule* module = nullptr;
  WEIR_TRY(find_device_module(folder, name, module));
  WEIR_TRY(from_module(*module, module->open(which)));
  out = module;
  return {};
}

Status load_device_module(const char* folder, const char* name, const char* wanted, const DeviceModule*& out) {
  const DeviceModule* module = nullptr;
  WEIR_TRY(find_device_module(folder, name, module));
  uint32_t which = 0;
  if (module->choose != nullptr) WEIR_TRY(from_module(*module, module->choose(wanted, which)));
  return load_device_module(folder, name, which, out);
}

Status DeviceHost::set_folder(const char* folder) {
  if (folder == nullptr || folder[0] == '\0') return {};
  return absolute_path("backend_dir", folder, folder_, sizeof(folder_));
}

Status DeviceHost::set_vulkan_device(const char* name) {
  if (name == nullptr) return {};
  const size_t n = std::strlen(name);
  if (n >= sizeof(vulkan_device_))
    return fail(WEIR_ERR_INVALID_ARG, "vulkan_device: %zu bytes, at most %zu", n, sizeof(vulkan_device_) - 1);
  std::memcpy(vulkan_device_, name, n + 1);
  return {};
}

Status DeviceHost::set_cache_folder(const char* folder) {
  if (folder == nullptr || folder[0] == '\0') return {};
  return absolute_path("cache_dir", folder, cache_folder_, sizeof(cache_folder_));
}

void DeviceHost::keep_cache(const DeviceModule& module, const Log& log) const {
  if (cache_folder_[0] == '\0' || module.keep_cache == nullptr) return;
  const Status status = module.keep_cache();
  if (status.ok()) return;
  log.write(status.code() == WEIR_ERR_NOT_FOUND ? WEIR_LOG_INFO : WEIR_LOG_WARNING, "%s", module.last_error());
}

namespace {

Status module_name(int32_t device, const char*& out) {
  for (const auto& module : kModules) {
    if (module.device != device) continue;
    out = module.name;
    return {};
  }
  return fail(WEIR_ERR_UNSUPPORTED, "this build has no such backend");
}

Status check_hooks(const AllocatorHooks& hooks, int32_t device) {
  if (device != WEIR_DEVICE_VULKAN || hooks.alloc == nullptr) return {};
  return fail(WEIR_ERR_UNSUPPORTED, "device_alloc: memory of Vulkan devices cannot come from a hook");
}

}  // namespace

Status DeviceHost::find(int32_t device, uint32_t which, const DeviceModule*& out) const {
  const char* name = nullptr;
  WEIR_TRY(check_hooks(hooks_, device));
  WEIR_TRY(module_name(device, name));
  if (cache_folder_[0] != '\0') {
    const DeviceModule* module = nullptr;
    WEIR_TRY(find_device_module(folder_, name, module));
    if (module->use_cache != nullptr) module->use_cache(cache_folder_);
  }
  if (which != kWanted) return load_device_module(folder_, name, which, out);
  return load_device_module(folder_, name, device == WEIR_DEVICE_VULKAN ? vulkan_device_ : "", out);
}

Status DeviceHost::list(int32_t device, ListedDevice* devices, uint32_t& n) const {
  n = 0;
  const char* name = nullptr;
  const DeviceModule* module = nullptr;
  WEIR_TRY(module_name(device, name));
  WEIR_TRY(find_device_module(folder_, name, module));
  WEIR_TRY(from_module(*module, module->list(devices, n)));
  const Status hooks = check_hooks(hooks_, device);
  for (uint32_t i = 0; i < n && !hooks.ok(); ++i)
    std::snprintf(devices[i].why_not, sizeof(devices[i].why_not), "%.511s", last_error_text());
  return {};
}

Status DeviceHost::wanted_vulkan(uint32_t& which) const {
  which = kWanted;
  if (vulkan_device_[0] == '\0') return {};
  const char* name = nullptr;
  const DeviceModule* module = nullptr;
  WEIR_TRY(module_name(WEIR_DEVICE_VULKAN, name));
  WEIR_TRY(find_device_module(folder_, name, module));
  return from_module(*module, module->choose(vulkan_device_, which));
}

Status DeviceHost::allocate(const DeviceModule& module, uint64_t bytes, const char* pool, void** out,
                            const char* way_out) {
  *out = nullptr;
  const char* why = "";
  Status status;
  if (hooks_.alloc != nullptr) {
    *out = ask_hook(hooks_, WEIR_MEMORY_DEVICE, bytes, kDeviceAlignment, why);
    if (*out == nullptr) status = Status(WEIR_ERR_OUT_OF_MEMORY);
  } else {
    status = from_module(module, module.allocate(bytes, out));
    if (!status.ok()) *out = nullptr;
  }
  if (status.code() == WEIR_ERR_OUT_OF_MEMORY) {
    return fail(WEIR_ERR_OUT_OF_MEMORY, "%llu bytes of device memory for %s could not be allocated%s%s",
                static_cast<unsigned long long>(bytes), pool, why, way_out);
  }
  WEIR_TRY(status);
  const uint64_t now = bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  uint64_t peak = peak_bytes_.load(std::memory_order_relaxed);
  while (now > peak && !peak_bytes_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
  }
  n_allocs_.fetch_add(1, std::memory_order_relaxed);
  HostMemory::note_thread_alloc();
  return {};
}

void DeviceHost::release(const DeviceModule& module, void* device, uint64_t bytes) {
  if (device == nullptr) return;
  if (hooks_.free != nullptr) {
    return_to_hook(hooks_, WEIR_MEMORY_DEVICE, bytes, kDeviceAlignment, device);
  } else {
    (void)module.release(device);  // after a lost device there is nothing to do about it
  }
  bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  n_frees_.fetch_add(1, std::memory_order_relaxed);
}

Status DeviceHost::measure(int32_t device, weir_bench_device& out) {
  constexpr uint64_t kBytes = uint64_t{1} << 30;  // far beyond any cache
  const DeviceModule* module = nullptr;
  WEIR_TRY(find(device, kWanted, module));
  DeviceInfo info = {};
  WEIR_TRY(from_module(*module, module->info(info)));
  out = {};
  out.struct_size = sizeof(out);
  out.device = module->backend->device;
  std::snprintf(out.name, sizeof(out.name), "%s", module->backend->target());
  out.free_bytes = info.free_bytes;
  out.library_bytes = info.total_bytes - info.free_bytes - std::min(info.total_bytes - info.free_bytes, bytes());
  void* from = nullptr;
  void* to = nullptr;
  double rate = 0.0;
  Status status = allocate(*module, kBytes, "a measurement", &from);
  if (status.ok()) status = allocate(*module, kBytes, "a measurement", &to);
  // Not zeros: those can be faster than data.
  if (status.ok()) status = from_module(*module, module->fill(from, 0x5A, kBytes));
  if (status.ok()) status = from_module(*module, module->copy_rate(from, to, kBytes, &rate));
  release(*module, from, kBytes);
  release(*module, to, kBytes);
  out.copy_gbps = rate / 1e9;
  return status;
}

}  // namespace weir
