// Vulkan's functions, found at run time: the loader is opened by name, so that nothing is linked with it.
#pragma once

#include <vulkan/vulkan_core.h>

#include "core/status.h"

namespace weir::vulkan {

struct Functions {
#define WEIR_VK_GLOBAL(name) PFN_##name name = nullptr;
#define WEIR_VK_INSTANCE(name) PFN_##name name = nullptr;
#define WEIR_VK_DEVICE(name) PFN_##name name = nullptr;
#include "vulkan/functions.inc"
#undef WEIR_VK_GLOBAL
#undef WEIR_VK_INSTANCE
#undef WEIR_VK_DEVICE
  PFN_vkGetInstanceProcAddr vkGetInstanceProcAddr = nullptr;
};

// Opens the library `file` and finds what needs no instance; then the other two kinds. WEIR_ERR_UNSUPPORTED says what
// is missing.
Status load_loader(const char* file, Functions& vk);
Status load_instance_functions(VkInstance instance, Functions& vk);
Status load_device_functions(VkDevice device, Functions& vk);

inline constexpr char kLoader[] = "libvulkan.so.1";

// The name of a VkResult.
const char* result_name(VkResult result);
// The status for a failed call: out of memory, lost, not supported or internal.
weir_status code_of(VkResult result);
// A failed call as a status whose message says what it was for. VK_SUCCESS is ok.
Status vulkan_status(VkResult result, const char* what);

}  // namespace weir::vulkan

#define WEIR_VK_TRY(call, what)                                                                     \
  do {                                                                                              \
    const VkResult weir_vk_result_ = (call);                                                        \
    if (weir_vk_result_ != VK_SUCCESS) return ::weir::vulkan::vulkan_status(weir_vk_result_, what); \
  } while (0)
