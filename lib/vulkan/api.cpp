// Finding Vulkan's functions, and what their results mean.
#include "vulkan/api.h"

#include <dlfcn.h>

namespace weir::vulkan {
namespace {

Status missing(const char* name) { return fail(WEIR_ERR_UNSUPPORTED, "Vulkan: the loader or driver has no %s", name); }

}  // namespace

Status load_loader(const char* file, Functions& vk) {
  // It stays loaded: drivers have threads.
  void* const library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return fail(WEIR_ERR_UNSUPPORTED, "Vulkan: there is no loader: %.512s", dlerror());
  vk.vkGetInstanceProcAddr = reinterpret_cast<PFN_vkGetInstanceProcAddr>(dlsym(library, "vkGetInstanceProcAddr"));
  if (vk.vkGetInstanceProcAddr == nullptr) return missing("vkGetInstanceProcAddr");
#define WEIR_VK_GLOBAL(name)                                                        \
  vk.name = reinterpret_cast<PFN_##name>(vk.vkGetInstanceProcAddr(nullptr, #name)); \
  if (vk.name == nullptr) return missing(#name);
#define WEIR_VK_INSTANCE(name)
#define WEIR_VK_DEVICE(name)
#include "vulkan/functions.inc"
#undef WEIR_VK_GLOBAL
#undef WEIR_VK_INSTANCE
#undef WEIR_VK_DEVICE
  return {};
}

Status load_instance_functions(VkInstance instance, Functions& vk) {
#define WEIR_VK_GLOBAL(name)
#define WEIR_VK_INSTANCE(name)                                                       \
  vk.name = reinterpret_cast<PFN_##name>(vk.vkGetInstanceProcAddr(instance, #name)); \
  if (vk.name == nullptr) return missing(#name);
#define WEIR_VK_DEVICE(name)
#include "vulkan/functions.inc"
#undef WEIR_VK_GLOBAL
#undef WEIR_VK_INSTANCE
#undef WEIR_VK_DEVICE
  return {};
}

Status load_device_functions(VkDevice device, Functions& vk) {
#define WEIR_VK_GLOBAL(name)
#define WEIR_VK_INSTANCE(name)
#define WEIR_VK_DEVICE(name)                                                     \
  vk.name = reinterpret_cast<PFN_##name>(vk.vkGetDeviceProcAddr(device, #name)); \
  if (vk.name == nullptr) return missing(#name);
#include "vulkan/functions.inc"
#undef WEIR_VK_GLOBAL
#undef WEIR_VK_INSTANCE
#undef WEIR_VK_DEVICE
  return {};
}

const char* result_name(VkResult result) {
  switch (result) {
#define WEIR_CASE(name) \
  case name:            \
    return #name;
    WEIR_CASE(VK_SUCCESS)
    WEIR_CASE(VK_NOT_READY)
    WEIR_CASE(VK_TIMEOUT)
    WEIR_CASE(VK_INCOMPLETE)
    WEIR_CASE(VK_ERROR_OUT_OF_HOST_MEMORY)
    WEIR_CASE(VK_ERROR_OUT_OF_DEVICE_MEMORY)
    WEIR_CASE(VK_ERROR_INITIALIZATION_FAILED)
    WEIR_CASE(VK_ERROR_DEVICE_LOST)
    WEIR_CASE(VK_ERROR_MEMORY_MAP_FAILED)
    WEIR_CASE(VK_ERROR_LAYER_NOT_PRESENT)
    WEIR_CASE(VK_ERROR_EXTENSION_NOT_PRESENT)
    WEIR_CASE(VK_ERROR_FEATURE_NOT_PRESENT)
    WEIR_CASE(VK_ERROR_INCOMPATIBLE_DRIVER)
    WEIR_CASE(VK_ERROR_TOO_MANY_OBJECTS)
    WEIR_CASE(VK_ERROR_UNKNOWN)
#undef WEIR_CASE
    default:
      return "VkResult";
  }
}

weir_status code_of(VkResult result) {
  switch (result) {
    case VK_SUCCESS:
      return WEIR_OK;
    case VK_ERROR_OUT_OF_HOST_MEMORY:
    case VK_ERROR_OUT_OF_DEVICE_MEMORY:
    case VK_ERROR_TOO_MANY_OBJECTS:
      return WEIR_ERR_OUT_OF_MEMORY;
    case VK_ERROR_DEVICE_LOST:
      return WEIR_ERR_DEVICE_LOST;
    case VK_ERROR_LAYER_NOT_PRESENT:
    case VK_ERROR_EXTENSION_NOT_PRESENT:
    case VK_ERROR_FEATURE_NOT_PRESENT:
    case VK_ERROR_INCOMPATIBLE_DRIVER:
      return WEIR_ERR_UNSUPPORTED;
    default:
      return WEIR_ERR_INTERNAL;
  }
}

Status vulkan_status(VkResult result, const char* what) {
  if (result == VK_SUCCESS) return {};
  return fail(code_of(result), "Vulkan, %s: %s (%d)", what, result_name(result), static_cast<int>(result));
}

}  // namespace weir::vulkan
