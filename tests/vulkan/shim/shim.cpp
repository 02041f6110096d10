// A Vulkan loader that forwards to the real one, and lies where a test told it to (shim.h).
#include "tests/vulkan/shim/shim.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "vulkan/cooperative_matrix.h"

namespace weir::test {
namespace {

// The real functions, of every kind; null until they are known.
struct Functions {
#define WEIR_VK_GLOBAL(name) PFN_##name name = nullptr;
#define WEIR_VK_INSTANCE(name) PFN_##name name = nullptr;
#define WEIR_VK_DEVICE(name) PFN_##name name = nullptr;
#include "vulkan/functions.inc"
#undef WEIR_VK_GLOBAL
#undef WEIR_VK_INSTANCE
#undef WEIR_VK_DEVICE
  PFN_vkGetInstanceProcAddr vkGetInstanceProcAddr = nullptr;
  PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR = nullptr;
} real;

Shim the;
std::mutex mutex;                      // of the maps
std::atomic<bool> is_asked_for{true};  // whether the latest submission has ended
std::unordered_map<VkDeviceMemory, int64_t> bytes_of;
std::unordered_map<VkCommandPool, int64_t> buffers_of;  // command buffers, which go with their pool

bool fails(Call call, VkResult& result) {
  Fault& fault = the.faults[static_cast<uint32_t>(call)];
  uint64_t n = fault.n;
  do {
    if (n == 0) return false;
  } while (!fault.n.compare_exchange_weak(n, n - 1));  // pipelines are made by several threads
  if (n != 1) return false;
  ++the.n_failed;
  result = fault.result;
  if (result == VK_ERROR_DEVICE_LOST) the.is_lost = true;
  return true;
}

bool find_loader() {
  if (real.vkGetInstanceProcAddr != nullptr) return true;
  void* const library = the.loader == nullptr ? nullptr : dlopen(the.loader, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return false;
  real.vkGetInstanceProcAddr = reinterpret_cast<PFN_vkGetInstanceProcAddr>(dlsym(library, "vkGetInstanceProcAddr"));
#define WEIR_VK_GLOBAL(name) real.name = reinterpret_cast<PFN_##name>(real.vkGetInstanceProcAddr(nullptr, #name));
#define WEIR_VK_INSTANCE(name)
#define WEIR_VK_DEVICE(name)
#include "vulkan/functions.inc"
#undef WEIR_VK_GLOBAL
#undef WEIR_VK_INSTANCE
#undef WEIR_VK_DEVICE
  return true;
}

// Before the real call: the faults; after it: `counter` goes up if it succeeded.
template <class Real, class... Args>
VkResult call(Call which, std::atomic<int64_t>* counter, Real function, Args... args) {
  VkResult result = VK_SUCCESS;
  if (fails(which, result)) return result;
  result = function(args...);
  if (result == VK_SUCCESS && counter != nullptr) ++*counter;
  return result;
}

// What was submitted may use what is being given back. The process goes on, so it waits.
void note_release(VkDevice device) {
  if (!the.is_busy) return;
  ++the.n_released_busy;
  (void)real.vkDeviceWaitIdle(device);
  the.is_busy = false;
}

// ------------------------------------------------------------------------------------------------- instance, devices

struct Handle {
  VkPhysicalDevice device = nullptr;  // the real one
  const ShownDevice* shown = nullptr;
} handles[std::size(Shim{}.devices)];

const Handle& of(VkPhysicalDevice device) { return *reinterpret_cast<const Handle*>(device); }

VKAPI_ATTR VkResult VKAPI_CALL enumerate_version(uint32_t* version) {
  const VkResult result = real.vkEnumerateInstanceVersion(version);
  if (the.loader_version != 0) *version = the.loader_version;
  return result;
}

VKAPI_ATTR VkResult VKAPI_CALL create_instance(const VkInstanceCreateInfo* info, const VkAllocationCallbacks* hooks,
                                               VkInstance* out) {
  if (!the.has_driver) return VK_ERROR_INCOMPATIBLE_DRIVER;
  const VkResult result = real.vkCreateInstance(info, hooks, out);
  if (result != VK_SUCCESS) return result;
  ++the.n_instances;
#define WEIR_VK_GLOBAL(name)
#define WEIR_VK_INSTANCE(name) real.name = reinterpret_cast<PFN_##name>(real.vkGetInstanceProcAddr(*out, #name));
#define WEIR_VK_DEVICE(name) real.name = reinterpret_cast<PFN_##name>(real.vkGetInstanceProcAddr(*out, #name));
#include "vulkan/functions.inc"
#undef WEIR_VK_GLOBAL
#undef WEIR_VK_INSTANCE
#undef WEIR_VK_DEVICE
  real.vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR =
      reinterpret_cast<PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR>(
          real.vkGetInstanceProcAddr(*out, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR"));
  return result;
}

VKAPI_ATTR void VKAPI_CALL destroy_instance(VkInstance instance, const VkAllocationCallbacks* hooks) {
  --the.n_instances;
  real.vkDestroyInstance(instance, hooks);
}

VkPhysicalDevice find_base(VkInstance instance) {
  VkPhysicalDevice devices[16];
  uint32_t n = 16;
  if (real.vkEnumeratePhysicalDevices(instance, &n, devices) < 0) return nullptr;
  for (uint32_t i = 0; i < n; ++i) {
    VkPhysicalDeviceProperties p;
    real.vkGetPhysicalDeviceProperties(devices[i], &p);
    if (the.base == nullptr || strcasestr(p.deviceName, the.base) != nullptr) return devices[i];
  }
  return n > 0 ? devices[0] : nullptr;
}

VKAPI_ATTR VkResult VKAPI_CALL enumerate_devices(VkInstance instance, uint32_t* n, VkPhysicalDevice* out) {
  if (out == nullptr) {
    *n = the.n_devices;
    return VK_SUCCESS;
  }
  const VkPhysicalDevice base = find_base(instance);
  if (base == nullptr) return VK_ERROR_INITIALIZATION_FAILED;
  const uint32_t room = *n;
  *n = std::min(room, the.n_devices);
  for (uint32_t i = 0; i < *n; ++i) {
    handles[i] = {base, &the.devices[i]};
    out[i] = reinterpret_cast<VkPhysicalDevice>(&handles[i]);
  }
  return room < the.n_devices ? VK_INCOMPLETE : VK_SUCCESS;
}

void change(const ShownDevice& d, VkPhysicalDeviceProperties& p) {
  if (d.name != nullptr) std::snprintf(p.deviceName, sizeof(p.deviceName), "%s", d.name);
  if (d.type != VK_PHYSICAL_DEVICE_TYPE_OTHER) p.deviceType = d.type;
  if (d.lack == Lack::kVersion) p.apiVersion = VK_API_VERSION_1_2;
  if (d.lack == Lack::kInvocations) p.limits.maxComputeWorkGroupInvocations = 128;
  if (d.lack == Lack::kSharedBytes) p.limits.maxComputeSharedMemorySize = 16384;
  if (d.lack == Lack::kPushBytes) p.limits.maxPushConstantsSize = 64;
}

VKAPI_ATTR void VKAPI_CALL get_properties(VkPhysicalDevice device, VkPhysicalDeviceProperties* out) {
  real.vkGetPhysicalDeviceProperties(of(device).device, out);
  change(*of(device).shown, *out);
}

VKAPI_ATTR void VKAPI_CALL get_properties2(VkPhysicalDevice device, VkPhysicalDeviceProperties2* out) {
  const ShownDevice& d = *of(device).shown;
  real.vkGetPhysicalDeviceProperties2(of(device).device, out);
  change(d, out->properties);
  for (auto* next = static_cast<VkBaseOutStructure*>(out->pNext); next != nullptr; next = next->pNext) {
    if (next->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES) {
      auto& p = *reinterpret_cast<VkPhysicalDeviceVulkan11Properties*>(next);
      if (d.lack == Lack::kComputeStage) p.subgroupSupportedStages &= ~VkShaderStageFlags{VK_SHADER_STAGE_COMPUTE_BIT};
      if (d.lack == Lack::kShuffle)
        p.subgroupSupportedOperations &= ~VkSubgroupFeatureFlags{VK_SUBGROUP_FEATURE_SHUFFLE_BIT};
      if (d.lack == Lack::kArithmetic)
        p.subgroupSupportedOperations &= ~VkSubgroupFeatureFlags{VK_SUBGROUP_FEATURE_ARITHMETIC_BIT};
      if (d.max_allocation != 0) p.maxMemoryAllocationSize = d.max_allocation;
    } else if (next->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_PROPERTIES) {
      auto& p = *reinterpret_cast<VkPhysicalDeviceVulkan13Properties*>(next);
      if (d.lack == Lack::kSubgroupSize) p.minSubgroupSize = 4;
      if (d.max_buffer != 0) p.maxBufferSize = d.max_buffer;
    }
  }
}

VKAPI_ATTR void VKAPI_CALL get_features2(VkPhysicalDevice device, VkPhysicalDeviceFeatures2* out) {
  const ShownDevice& d = *of(device).shown;
  real.vkGetPhysicalDeviceFeatures2(of(device).device, out);
  for (auto* next = static_cast<VkBaseOutStructure*>(out->pNext); next != nullptr; next = next->pNext) {
    if (next->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES && d.lack == Lack::kAddresses)
      reinterpret_cast<VkPhysicalDeviceVulkan12Features*>(next)->bufferDeviceAddress = VK_FALSE;
    if (next->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES && d.lack == Lack::kFullSubgroups)
      reinterpret_cast<VkPhysicalDeviceVulkan13Features*>(next)->computeFullSubgroups = VK_FALSE;
  }
}

VKAPI_ATTR VkResult VKAPI_CALL get_matrices(VkPhysicalDevice device, uint32_t* n,
                                            VkCooperativeMatrixPropertiesKHR* out) {
  if (real.vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR == nullptr) return VK_ERROR_EXTENSION_NOT_PRESENT;
  if (of(device).shown->lack == Lack::kMatrices) {
    *n = 0;
    return VK_SUCCESS;
  }
  return real.vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR(of(device).device, n, out);
}

// Types by their numbers: the odd one is behind the real ones, because buffers' masks and allocations count as the
// driver does.
VKAPI_ATTR void VKAPI_CALL get_memory2(VkPhysicalDevice device, VkPhysicalDeviceMemoryProperties2* out) {
  const ShownDevice& d = *of(device).shown;
  real.vkGetPhysicalDeviceMemoryProperties2(of(device).device, out);
  VkPhysicalDeviceMemoryProperties& m = out->memoryProperties;
  uint64_t largest = 0;
  for (uint32_t i = 0; i < m.memoryHeapCount; ++i) {
    if (d.memory_bytes != 0) m.memoryHeaps[i].size = d.memory_bytes;
    largest = std::max(largest, m.memoryHeaps[i].size);
  }
  for (uint32_t i = 0; i < m.memoryTypeCount && d.lack == Lack::kMappedMemory; ++i)
    m.memoryTypes[i].propertyFlags &= ~VkMemoryPropertyFlags{VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT};
  if (!d.has_odd_memory || m.memoryTypeCount == VK_MAX_MEMORY_TYPES || m.memoryHeapCount == VK_MAX_MEMORY_HEAPS) return;
  m.memoryHeaps[m.memoryHeapCount] = {2 * largest, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT};
  m.memoryTypes[m.memoryTypeCount++] = {VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT | VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
                                            VK_MEMORY_PROPERTY_HOST_COHERENT_BIT | VK_MEMORY_PROPERTY_HOST_CACHED_BIT,
                                        m.memoryHeapCount++};
}

VKAPI_ATTR void VKAPI_CALL get_families(VkPhysicalDevice device, uint32_t* n, VkQueueFamilyProperties* out) {
  real.vkGetPhysicalDeviceQueueFamilyProperties(of(device).device, n, out);
  for (uint32_t i = 0; out != nullptr && i < *n && of(device).shown->lack == Lack::kComputeQueue; ++i)
    out[i].queueFlags &= ~VkQueueFlags{VK_QUEUE_COMPUTE_BIT};
}

VKAPI_ATTR VkResult VKAPI_CALL enumerate_extensions(VkPhysicalDevice device, const char* layer, uint32_t* n,
                                                    VkExtensionProperties* out) {
  return real.vkEnumerateDeviceExtensionProperties(of(device).device, layer, n, out);
}

Lack opened_lack = Lack::kNothing;  // of the device that is open

VKAPI_ATTR VkResult VKAPI_CALL create_device(VkPhysicalDevice device, const VkDeviceCreateInfo* info,
                                             const VkAllocationCallbacks* hooks, VkDevice* out) {
  const VkResult result =
      call(Call::vkCreateDevice, &the.n_open_devices, real.vkCreateDevice, of(device).device, info, hooks, out);
  if (result != VK_SUCCESS) return result;
  opened_lack = of(device).shown->lack;
#define WEIR_VK_GLOBAL(name)
#define WEIR_VK_INSTANCE(name)
#define WEIR_VK_DEVICE(name) real.name = reinterpret_cast<PFN_##name>(real.vkGetDeviceProcAddr(*out, #name));
#include "vulkan/functions.inc"
#undef WEIR_VK_GLOBAL
#undef WEIR_VK_INSTANCE
#undef WEIR_VK_DEVICE
  return result;
}

VKAPI_ATTR void VKAPI_CALL destroy_device(VkDevice device, const VkAllocationCallbacks* hooks) {
  note_release(device);
  --the.n_open_devices;
  real.vkDestroyDevice(device, hooks);
}

// ------------------------------------------------------------------------------------------------- objects of a device

// A function that may fail and counts nothing.
#define WEIR_SHIM_PLAIN(name, PARAMETERS, ...) \
  VKAPI_ATTR VkResult VKAPI_CALL shim_##name PARAMETERS { return call(Call::name, nullptr, real.name, __VA_ARGS__); }
// Makes one object that `counter` counts, and the function that destroys it.
#define WEIR_SHIM_OBJECT(name, Info, Object, counter, destroy)                                                  \
  VKAPI_ATTR VkResult VKAPI_CALL shim_##name(VkDevice device, const Info* info, const VkAllocationCallbacks* h, \
                                             Object* out) {                                                     \
    return call(Call::name, &the.counter, real.name, device, info, h, out);                                     \
  }                                                                                                             \
  VKAPI_ATTR void VKAPI_CALL shim_##destroy(VkDevice device, Object object, const VkAllocationCallbacks* h) {   \
    note_release(device);                                                                                       \
    if (object != VK_NULL_HANDLE) --the.counter;                                                                \
    real.destroy(device, object, h);                                                                            \
  }

WEIR_SHIM_OBJECT(vkCreateBuffer, VkBufferCreateInfo, VkBuffer, n_buffers, vkDestroyBuffer)
WEIR_SHIM_OBJECT(vkCreatePipelineLayout, VkPipelineLayoutCreateInfo, VkPipelineLayout, n_layouts,
                 vkDestroyPipelineLayout)
WEIR_SHIM_OBJECT(vkCreateFence, VkFenceCreateInfo, VkFence, n_fences, vkDestroyFence)
WEIR_SHIM_PLAIN(vkBindBufferMemory, (VkDevice device, VkBuffer b, VkDeviceMemory m, VkDeviceSize at), device, b, m, at)
WEIR_SHIM_PLAIN(vkMapMemory,
                (VkDevice device, VkDeviceMemory memory, VkDeviceSize at, VkDeviceSize n, VkMemoryMapFlags flags,
                 void** out),
                device, memory, at, n, flags, out)
WEIR_SHIM_PLAIN(vkBeginCommandBuffer, (VkCommandBuffer commands, const VkCommandBufferBeginInfo* info), commands, info)
WEIR_SHIM_PLAIN(vkEndCommandBuffer, (VkCommandBuffer commands), commands)
WEIR_SHIM_PLAIN(vkResetCommandPool, (VkDevice device, VkCommandPool pool, VkCommandPoolResetFlags flags), device, pool,
                flags)
WEIR_SHIM_PLAIN(vkResetFences, (VkDevice device, uint32_t n, const VkFence* fences), device, n, fences)

VKAPI_ATTR VkResult VKAPI_CALL shim_vkAllocateMemory(VkDevice device, const VkMemoryAllocateInfo* info,
                                                     const VkAllocationCallbacks* hooks, VkDeviceMemory* out) {
  const VkResult result =
      call(Call::vkAllocateMemory, &the.n_memories, real.vkAllocateMemory, device, info, hooks, out);
  if (result != VK_SUCCESS) return result;
  const auto bytes = static_cast<int64_t>(info->allocationSize);
  ++the.n_memories_made;
  the.memory_bytes += bytes;
  const std::lock_guard lock(mutex);
  bytes_of[*out] = bytes;
  return result;
}

VKAPI_ATTR void VKAPI_CALL shim_vkFreeMemory(VkDevice device, VkDeviceMemory memory,
                                             const VkAllocationCallbacks* hooks) {
  note_release(device);
  if (memory != VK_NULL_HANDLE) {
    --the.n_memories;
    const std::lock_guard lock(mutex);
    the.memory_bytes -= bytes_of[memory];
    bytes_of.erase(memory);
  }
  real.vkFreeMemory(device, memory, hooks);
}

// One kind of shuffle becomes the other: what was a distance is a lane.
std::vector<uint32_t> with_wrong_shuffles(const VkShaderModuleCreateInfo& info) {
  constexpr uint32_t kHeaderWords = 5, kShuffle = 345, kShuffleXor = 346;
  std::vector<uint32_t> words(info.pCode, info.pCode + info.codeSize / sizeof(uint32_t));
  for (size_t at = kHeaderWords; at < words.size();) {
    const uint32_t n = words[at] >> 16, op = words[at] & 0xFFFF;
    if (n == 0) break;
    if (op == kShuffle) words[at] = n << 16 | kShuffleXor;
    if (op == kShuffleXor) words[at] = n << 16 | kShuffle;
    at += n;
  }
  return words;
}

VKAPI_ATTR VkResult VKAPI_CALL shim_vkCreateShaderModule(VkDevice device, const VkShaderModuleCreateInfo* info,
                                                         const VkAllocationCallbacks* hooks, VkShaderModule* out) {
  VkShaderModuleCreateInfo changed = *info;
  std::vector<uint32_t> words;
  if (opened_lack == Lack::kRightShuffle) {
    words = with_wrong_shuffles(*info);
    changed.pCode = words.data();
  }
  return call(Call::vkCreateShaderModule, &the.n_shaders, real.vkCreateShaderModule, device, &changed, hooks, out);
}

VKAPI_ATTR void VKAPI_CALL shim_vkDestroyShaderModule(VkDevice device, VkShaderModule shader,
                                                      const VkAllocationCallbacks* hooks) {
  if (shader != VK_NULL_HANDLE) --the.n_shaders;
  real.vkDestroyShaderModule(device, shader, hooks);
}

VKAPI_ATTR VkResult VKAPI_CALL shim_vkCreatePipelineCache(VkDevice device, const VkPipelineCacheCreateInfo* info,
                                                          const VkAllocationCallbacks* hooks, VkPipelineCache* out) {
  the.read_bytes = info->initialDataSize;
  the.read_sum = 0;
  for (size_t i = 0; i < info->initialDataSize; ++i)
    the.read_sum += static_cast<const unsigned char*>(info->pInitialData)[i];
  VkPipelineCacheCreateInfo changed = *info;
  if (the.cache_bytes_per_pipeline != 0) changed.initialDataSize = 0;  // the real driver did not make them
  return call(Call::vkCreatePipelineCache, &the.n_caches, real.vkCreatePipelineCache, device, &changed, hooks, out);
}

VKAPI_ATTR void VKAPI_CALL shim_vkDestroyPipelineCache(VkDevice device, VkPipelineCache cache,
                                                       const VkAllocationCallbacks* hooks) {
  if (cache != VK_NULL_HANDLE) --the.n_caches;
  real.vkDestroyPipelineCache(device, cache, hooks);
}

VKAPI_ATTR VkResult VKAPI_CALL shim_vkGetPipelineCacheData(VkDevice device, VkPipelineCache cache, size_t* n,
                                                           void* out) {
  VkResult result = VK_SUCCESS;
  if (out != nullptr && fails(Call::vkGetPipelineCacheData, result)) return result;
  const uint64_t each = the.cache_bytes_per_pipeline;
  if (each == 0) return real.vkGetPipelineCacheData(device, cache, n, out);
  const uint64_t bytes = std::max(32 + each * the.n_pipelines_made, the.read_bytes);  // it holds what it has read
  if (out != nullptr && *n < bytes) return VK_INCOMPLETE;
  *n = bytes;
  if (out != nullptr) std::memset(out, 0xA5, bytes);
  return result;
}

WEIR_SHIM_PLAIN(vkMergePipelineCaches, (VkDevice device, VkPipelineCache to, uint32_t n, const VkPipelineCache* from),
                device, to, n, from)

VKAPI_ATTR VkResult VKAPI_CALL shim_vkCreateComputePipelines(VkDevice device, VkPipelineCache cache, uint32_t n,
                                                             const VkComputePipelineCreateInfo* info,
                                                             const VkAllocationCallbacks* hooks, VkPipeline* out) {
  const VkResult result =
      call(Call::vkCreateComputePipelines, nullptr, real.vkCreateComputePipelines, device, cache, n, info, hooks, out);
  if (result != VK_SUCCESS) return result;
  if (cache == VK_NULL_HANDLE) the.n_uncached_pipelines += n;
  the.n_pipelines += n;
  the.n_pipelines_made += n;
  return result;
}

VKAPI_ATTR void VKAPI_CALL shim_vkDestroyPipeline(VkDevice device, VkPipeline pipeline,
                                                  const VkAllocationCallbacks* hooks) {
  note_release(device);
  if (pipeline != VK_NULL_HANDLE) --the.n_pipelines;
  real.vkDestroyPipeline(device, pipeline, hooks);
}

VKAPI_ATTR VkResult VKAPI_CALL shim_vkAllocateCommandBuffers(VkDevice device, const VkCommandBufferAllocateInfo* info,
                                                             VkCommandBuffer* out) {
  const VkResult result =
      call(Call::vkAllocateCommandBuffers, nullptr, real.vkAllocateCommandBuffers, device, info, out);
  if (result != VK_SUCCESS) return result;
  the.n_command_buffers += info->commandBufferCount;
  const std::lock_guard lock(mutex);
  buffers_of[info->commandPool] += info->commandBufferCount;
  return result;
}

VKAPI_ATTR void VKAPI_CALL shim_vkFreeCommandBuffers(VkDevice device, VkCommandPool pool, uint32_t n,
                                                     const VkCommandBuffer* commands) {
  note_release(device);
  the.n_command_buffers -= n;
  real.vkFreeCommandBuffers(device, pool, n, commands);
  const std::lock_guard lock(mutex);
  buffers_of[pool] -= n;
}

VKAPI_ATTR VkResult VKAPI_CALL shim_vkCreateCommandPool(VkDevice device, const VkCommandPoolCreateInfo* info,
                                                        const VkAllocationCallbacks* hooks, VkCommandPool* out) {
  return call(Call::vkCreateCommandPool, &the.n_pools, real.vkCreateCommandPool, device, info, hooks, out);
}

VKAPI_ATTR void VKAPI_CALL shim_vkDestroyCommandPool(VkDevice device, VkCommandPool pool,
                                                     const VkAllocationCallbacks* hooks) {
  note_release(device);
  if (pool != VK_NULL_HANDLE) {
    --the.n_pools;
    const std::lock_guard lock(mutex);
    the.n_command_buffers -= buffers_of[pool];
    buffers_of.erase(pool);
  }
  real.vkDestroyCommandPool(device, pool, hooks);
}

// ------------------------------------------------------------------------------------------------ submitting, waiting

VKAPI_ATTR VkResult VKAPI_CALL shim_vkQueueSubmit(VkQueue to, uint32_t n, const VkSubmitInfo* info, VkFence fence) {
  VkResult result = VK_SUCCESS;
  if (the.is_lost) return VK_ERROR_DEVICE_LOST;
  if (fails(Call::vkQueueSubmit, result)) return result;
  result = real.vkQueueSubmit(to, n, info, fence);
  if (result != VK_SUCCESS) return result;
  the.is_busy = true;
  is_asked_for = false;
  return result;
}

// A device that is lost uses nothing any more, so the real one has to end first.
VkResult after_faults(VkDevice device, uint32_t n, const VkFence* fences) {
  VkResult result = the.is_lost ? VK_ERROR_DEVICE_LOST : VK_SUCCESS;
  const bool is_first = !is_asked_for.exchange(true);
  if (the.is_lost || (is_first && fails(Call::vkWaitForFences, result))) {
    if (result == VK_ERROR_DEVICE_LOST && the.is_busy) {
      (void)real.vkWaitForFences(device, n, fences, VK_TRUE, UINT64_MAX);
      the.is_busy = false;
    }
  }
  return result;
}

VKAPI_ATTR VkResult VKAPI_CALL shim_vkWaitForFences(VkDevice device, uint32_t n, const VkFence* fences, VkBool32 all,
                                                    uint64_t ns) {
  VkResult result = after_faults(device, n, fences);
  if (result != VK_SUCCESS) return result;
  result = real.vkWaitForFences(device, n, fences, all, ns);
  if (result == VK_SUCCESS) the.is_busy = false;
  return result;
}

VKAPI_ATTR VkResult VKAPI_CALL shim_vkGetFenceStatus(VkDevice device, VkFence fence) {
  VkResult result = after_faults(device, 1, &fence);
  if (result != VK_SUCCESS) return result;
  result = real.vkGetFenceStatus(device, fence);
  if (result == VK_SUCCESS) the.is_busy = false;
  return result;
}

VKAPI_ATTR VkResult VKAPI_CALL shim_vkDeviceWaitIdle(VkDevice device) {
  const VkResult result = real.vkDeviceWaitIdle(device);
  the.is_busy = false;
  return the.is_lost ? VK_ERROR_DEVICE_LOST : result;
}

// ------------------------------------------------------------------------------------------------------------ by name

PFN_vkVoidFunction own_instance_function(const char* name);
PFN_vkVoidFunction own_device_function(const char* name);

VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_device_function(VkDevice device, const char* name) {
  const PFN_vkVoidFunction own = own_device_function(name);
  return own != nullptr ? own : real.vkGetDeviceProcAddr(device, name);
}

VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_instance_function(VkInstance instance, const char* name) {
  if (!find_loader()) return nullptr;
  PFN_vkVoidFunction own = own_instance_function(name);
  if (own == nullptr) own = own_device_function(name);
  return own != nullptr ? own : real.vkGetInstanceProcAddr(instance, name);
}

struct Named {
  const char* name;
  PFN_vkVoidFunction function;
};

template <class Table>
PFN_vkVoidFunction find_in(const Table& table, const char* name) {
  for (const Named& named : table)
    if (std::strcmp(named.name, name) == 0) return named.function;
  return nullptr;
}

#define WEIR_OWN(name, function) \
  Named { #name, reinterpret_cast < PFN_vkVoidFunction>(static_cast <PFN_##name>(function)) }

PFN_vkVoidFunction own_instance_function(const char* name) {
  static const Named table[] = {
      WEIR_OWN(vkGetInstanceProcAddr, get_instance_function),
      WEIR_OWN(vkEnumerateInstanceVersion, enumerate_version),
      WEIR_OWN(vkCreateInstance, create_instance),
      WEIR_OWN(vkDestroyInstance, destroy_instance),
      WEIR_OWN(vkEnumeratePhysicalDevices, enumerate_devices),
      WEIR_OWN(vkGetPhysicalDeviceProperties, get_properties),
      WEIR_OWN(vkGetPhysicalDeviceProperties2, get_properties2),
      WEIR_OWN(vkGetPhysicalDeviceFeatures2, get_features2),
      WEIR_OWN(vkGetPhysicalDeviceMemoryProperties2, get_memory2),
      WEIR_OWN(vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR, get_matrices),
      WEIR_OWN(vkGetPhysicalDeviceQueueFamilyProperties, get_families),
      WEIR_OWN(vkEnumerateDeviceExtensionProperties, enumerate_extensions),
      WEIR_OWN(vkCreateDevice, create_device),
      WEIR_OWN(vkGetDeviceProcAddr, get_device_function),
  };
  return find_in(table, name);
}

PFN_vkVoidFunction own_device_function(const char* name) {
#define WEIR_SHIM(name) WEIR_OWN(name, shim_##name)
  static const Named table[] = {
      WEIR_OWN(vkDestroyDevice, destroy_device),
      WEIR_SHIM(vkCreateBuffer),
      WEIR_SHIM(vkDestroyBuffer),
      WEIR_SHIM(vkAllocateMemory),
      WEIR_SHIM(vkFreeMemory),
      WEIR_SHIM(vkBindBufferMemory),
      WEIR_SHIM(vkMapMemory),
      WEIR_SHIM(vkCreateShaderModule),
      WEIR_SHIM(vkDestroyShaderModule),
      WEIR_SHIM(vkCreatePipelineLayout),
      WEIR_SHIM(vkDestroyPipelineLayout),
      WEIR_SHIM(vkCreateComputePipelines),
      WEIR_SHIM(vkCreatePipelineCache),
      WEIR_SHIM(vkDestroyPipelineCache),
      WEIR_SHIM(vkGetPipelineCacheData),
      WEIR_SHIM(vkMergePipelineCaches),
      WEIR_SHIM(vkDestroyPipeline),
      WEIR_SHIM(vkCreateCommandPool),
      WEIR_SHIM(vkDestroyCommandPool),
      WEIR_SHIM(vkAllocateCommandBuffers),
      WEIR_SHIM(vkFreeCommandBuffers),
      WEIR_SHIM(vkBeginCommandBuffer),
      WEIR_SHIM(vkEndCommandBuffer),
      WEIR_SHIM(vkResetCommandPool),
      WEIR_SHIM(vkCreateFence),
      WEIR_SHIM(vkDestroyFence),
      WEIR_SHIM(vkResetFences),
      WEIR_SHIM(vkGetFenceStatus),
      WEIR_SHIM(vkWaitForFences),
      WEIR_SHIM(vkQueueSubmit),
      WEIR_SHIM(vkDeviceWaitIdle),
  };
#undef WEIR_SHIM
  return find_in(table, name);
}

}  // namespace
}  // namespace weir::test

extern "C" {

__attribute__((visibility("default"))) weir::test::Shim* weir_vulkan_shim() { return &weir::test::the; }

// All that the module takes from a loader by its name.
__attribute__((visibility("default"))) VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL
vkGetInstanceProcAddr(VkInstance instance, const char* name) {
  return weir::test::get_instance_function(instance, name);
}
}
