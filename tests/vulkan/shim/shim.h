// What a test tells the Vulkan loader of tests/vulkan/shim, and what it counts.
//
// The shim has the name of the real loader, libvulkan.so.1, and forwards every call to it, unless it was told to show
// other devices or to let a call fail. A process that loads the shim by its path gets it from then on for that name,
// too: so the module finds it.
#pragma once

#include <vulkan/vulkan_core.h>

#include <atomic>
#include <cstdint>

namespace weir::test {

// What a shown device does not have, or does wrongly.
enum class Lack : uint32_t {
  kNothing,
  kVersion,        // it has 1.2
  kSubgroupSize,   // it has subgroups of 4 lanes
  kComputeStage,   // no subgroup operations in compute shaders
  kShuffle,        // of subgroups
  kArithmetic,     // of subgroups
  kInvocations,    // it has 128 in a workgroup
  kSharedBytes,    // it has 16 KiB
  kPushBytes,      // it has 64 (which no Vulkan may)
  kAddresses,      // bufferDeviceAddress
  kFullSubgroups,  // computeFullSubgroups
  kComputeQueue,
  kRightShuffle,  // it shuffles, but takes other lanes' values than those that were asked for
  kMappedMemory,  // no memory type that the host sees
  kMatrices,      // cooperative ones
};

// One of the devices that are shown; all of them are copies of one real device.
struct ShownDevice {
  const char* name = nullptr;                                 // null: the real one's
  VkPhysicalDeviceType type = VK_PHYSICAL_DEVICE_TYPE_OTHER;  // kOther: the real one's
  uint64_t memory_bytes = 0;                                  // of each heap; 0: the real one's
  uint64_t max_allocation = 0, max_buffer = 0;  // maxMemoryAllocationSize, maxBufferSize; 0: the real ones
  Lack lack = Lack::kNothing;
  // A memory type in a heap of its own, larger than the others, that no buffer may use.
  bool has_odd_memory = false;
};

// Calls that can be made to fail.
enum class Call : uint32_t {
  vkCreateDevice,
  vkCreateBuffer,
  vkAllocateMemory,
  vkBindBufferMemory,
  vkMapMemory,
  vkCreateShaderModule,
  vkCreatePipelineLayout,
  vkCreateComputePipelines,
  vkCreatePipelineCache,
  vkGetPipelineCacheData,
  vkMergePipelineCaches,
  vkCreateCommandPool,
  vkAllocateCommandBuffers,
  vkBeginCommandBuffer,
  vkEndCommandBuffer,
  vkResetCommandPool,
  vkCreateFence,
  vkResetFences,
  vkQueueSubmit,
  vkWaitForFences,  // or vkGetFenceStatus: the first of them after each submission
  kCount
};

// The n-th call from when this was set fails. After VK_ERROR_DEVICE_LOST all submissions and waits fail with it.
struct Fault {
  std::atomic<uint64_t> n{0};  // 0: none fails; counts down
  VkResult result = VK_ERROR_OUT_OF_DEVICE_MEMORY;
};

struct Shim {
  // Set before the module opens the loader.
  const char* loader = nullptr;  // path of the real one
  const char* base = nullptr;    // a part of the name of the real device that is shown; null, or of none: the first one
  bool has_driver = true;
  uint32_t loader_version = 0;  // 0: the real one's
  uint32_t n_devices = 1;
  ShownDevice devices[16];

  Fault faults[static_cast<uint32_t>(Call::kCount)];
  std::atomic<uint64_t> n_failed{0};  // calls that failed because of `faults`

  // What was made and not destroyed.
  std::atomic<int64_t> n_instances{0}, n_open_devices{0}, n_buffers{0}, n_memories{0}, memory_bytes{0}, n_shaders{0},
      n_layouts{0}, n_pipelines{0}, n_pools{0}, n_command_buffers{0}, n_fences{0};
  // The same, ever.
  std::atomic<uint64_t> n_memories_made{0}, n_pipelines_made{0};
  // The driver's cache of pipelines. Without bytes of its own the real one's data are shown.
  std::atomic<int64_t> n_caches{0};
  std::atomic<uint64_t> n_uncached_pipelines{0};      // that were made without one
  std::atomic<uint64_t> cache_bytes_per_pipeline{0};  // of the data, after the first 32
  uint64_t read_bytes = 0, read_sum = 0;              // of the data that the latest one was made of; a sum of bytes
  // Objects that were given back while submitted work was neither waited for nor lost.
  std::atomic<uint64_t> n_released_busy{0};
  std::atomic<bool> is_busy{false}, is_lost{false};

  void fail_at(Call call, uint64_t n, VkResult result) {
    Fault& fault = faults[static_cast<uint32_t>(call)];
    fault.result = result;
    fault.n = n;
  }
};

inline constexpr char kShimSymbol[] = "weir_vulkan_shim";
using shim_fn = Shim* (*)();

}  // namespace weir::test
