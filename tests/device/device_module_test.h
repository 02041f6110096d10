// The backend module itself, for tests that take device memory as an application would, and allocator hooks that count
// and refuse.
#pragma once

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "device/module.h"
#include "device_interface.h"
#include "tests/device/device_test.h"

namespace weir::test {

inline const DeviceModule& device_module() {
  static const DeviceModule* module = nullptr;
  if (module == nullptr) {
    const std::string path = std::string(module_folder()) + "/libweir_" + device_name() + ".so";
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) fail_msg("%s", dlerror());
    const auto get = reinterpret_cast<device_module_fn>(dlsym(handle, kDeviceModuleSymbol));
    assert_non_null(get);
    assert_null(get(kDeviceInterface + 1));
    module = get(kDeviceInterface);
    assert_non_null(module);
    assert_true(module->open(0).ok());
  }
  return *module;
}

// Device hooks around the module's allocator. One thread at a time.
struct DeviceHooks {
  uint64_t n_allocs = 0, n_live = 0, bytes_live = 0;
  uint64_t fail_at = 0;  // the number, from 1, of the allocation that is refused
  uint64_t refused_bytes = 0;
  void* last = nullptr;

  static weir_status alloc(void* user, const weir_alloc_info* info, void** out) {
    auto& h = *static_cast<DeviceHooks*>(user);
    if (info->kind != WEIR_MEMORY_DEVICE || info->alignment != 256 || info->bytes == 0) return WEIR_ERR_INTERNAL;
    if (++h.n_allocs == h.fail_at) {
      h.refused_bytes = info->bytes;
      return WEIR_ERR_OUT_OF_MEMORY;
    }
    const DeviceModule& module = device_module();
    if (!module.allocate(info->bytes, out).ok()) return WEIR_ERR_OUT_OF_MEMORY;
    // Fresh memory may hold anything, such as NaN.
    if (!module.fill(*out, 0xFF, info->bytes).ok()) return WEIR_ERR_INTERNAL;
    h.last = *out;
    ++h.n_live;
    h.bytes_live += info->bytes;
    return WEIR_OK;
  }
  static weir_status free(void* user, const weir_alloc_info* info) {
    auto& h = *static_cast<DeviceHooks*>(user);
    --h.n_live;
    h.bytes_live -= info->bytes;
    return device_module().release(info->ptr).code();
  }
};

struct HostHooks {
  uint64_t n_allocs = 0, n_live = 0, bytes_live = 0;
  uint64_t fail_at = 0;

  static weir_status alloc(void* user, const weir_alloc_info* info, void** out) {
    auto& h = *static_cast<HostHooks*>(user);
    if (++h.n_allocs == h.fail_at) return WEIR_ERR_OUT_OF_MEMORY;
    if (posix_memalign(out, info->alignment < sizeof(void*) ? sizeof(void*) : info->alignment, info->bytes) != 0)
      return WEIR_ERR_OUT_OF_MEMORY;
    std::memset(*out, 0xCD, info->bytes);
    ++h.n_live;
    h.bytes_live += info->bytes;
    return WEIR_OK;
  }
  static weir_status free(void* user, const weir_alloc_info* info) {
    auto& h = *static_cast<HostHooks*>(user);
    --h.n_live;
    h.bytes_live -= info->bytes;
    std::free(info->ptr);
    return WEIR_OK;
  }
};

// For a test that gives device memory: Vulkan's driver alone gives it (docs/vulkan.md), and refuses hooks
// (vulkan/test_sessions).
#define NEED_DEVICE_HOOKS()                                        \
  do {                                                             \
    if (test_device() == WEIR_DEVICE_VULKAN) {                     \
      print_message("skipped: buffers cannot come from a hook\n"); \
      skip();                                                      \
    }                                                              \
  } while (0)

// Opens a runtime with the tiny model over hooks; either may be null.
inline void open_with_hooks(fixture& f, HostHooks* host, DeviceHooks* device) {
  weir_runtime_options options = gpu_runtime_options();
  if (host != nullptr) {
    options.alloc = HostHooks::alloc;
    options.free = HostHooks::free;
    options.alloc_user = host;
  }
  if (device != nullptr) {
    options.device_alloc = DeviceHooks::alloc;
    options.device_free = DeviceHooks::free;
    options.device_alloc_user = device;
  }
  assert_ok(weir_runtime_create(&options, &f.runtime));
  assert_ok(weir_model_open(f.runtime, TINY_MODEL, nullptr, &f.model));
}

}  // namespace weir::test
