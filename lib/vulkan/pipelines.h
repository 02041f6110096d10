// Pipelines, each made when it is first needed and kept as long as the device is open. Those of a recorded step are
// noted first, and made by several threads: a driver takes some 50 ms for one.
#pragma once

#include "vulkan/device.h"
#include "vulkan/kernels.h"

namespace weir::vulkan {

// The specialisation constants of a pipeline, in their order; 1 where a kernel does not know one. Those of
// cooperative kernels follow (pipelines.cpp).
struct Variant {
  uint32_t columns = 1;                 // 1..kMaxColumns, rounded up to a power of two
  uint32_t lanes = 1;                   // that work together
  uint32_t chunks = 1;                  // that a lane takes
  uint32_t invocations = kInvocations;  // of a workgroup
  uint32_t tile = 0;                    // of cooperative kernels, by its index in Device::tiles
  uint32_t mode = 0;                    // page_select: AggMode; attn_decode and attn_stop: shaders/decode.h
};

class Pipelines {
 public:
  Status open(const Device& d);
  // Nothing may be running.
  void close(const Device& d);
  // Made with it, from now on; null: without. It is the driver's, and may be shared by threads.
  void use(VkPipelineCache cache) { cache_ = cache; }
  uint32_t n_made() const { return n_made_; }
  Status get(const Device& d, Kernel kernel, WeightType type, const Variant& variant, VkPipeline& out);
  // Notes a pipeline that will be needed.
  Status note(const Device& d, Kernel kernel, WeightType type, const Variant& variant);
  // Makes what was noted. Nothing is noted afterwards, whether it succeeds or not.
  Status make_noted(const Device& d);
  void forget_noted() { n_noted_ = 0; }
  VkPipelineLayout layout() const { return layout_; }

 private:
  // What a pipeline is made of; `made` follows from it.
  struct Recipe {
    uint64_t key = 0;
    Kernel kernel = {};
    WeightType type = {};
    Variant variant;
    VkPipeline made = VK_NULL_HANDLE;
    VkResult result = VK_SUCCESS;
  };
  // More than a step has; those beyond are made when they are needed.
  static constexpr uint32_t kMaxNoted = 128;
  static constexpr uint32_t kMaxThreads = 8;
  // More than all kernels have variants together.
  static constexpr size_t kMaxPipelines = 2048;
  struct Made {
    uint64_t key = 0;  // 0: none
    VkPipeline pipeline = VK_NULL_HANDLE;
  };
  static Status recipe_of(const Device& d, Kernel kernel, WeightType type, const Variant& variant, Recipe& out);
  void make(const Device& d, Recipe& recipe) const;
  // Where the pipeline is, or would be.
  Made& find(uint64_t key);
  VkPipelineLayout layout_ = VK_NULL_HANDLE;
  VkPipelineCache cache_ = VK_NULL_HANDLE;
  uint32_t n_made_ = 0;
  Made made_[kMaxPipelines] = {};
  Recipe noted_[kMaxNoted];
  uint32_t n_noted_ = 0;
};

}  // namespace weir::vulkan
