// Pipelines, each made when it is first needed and kept as long as the device is open.
#pragma once

#include "vulkan/device.h"
#include "vulkan/kernels.h"

namespace weir::vulkan {

// The specialisation constants of a pipeline, in their order; 1 where a kernel does not know one. Those of
// cooperative kernels follow (pipelines.cpp).
struct Variant {
  uint32_t columns = 1;                 // 1..kMostColumns, rounded up to a power of two
  uint32_t lanes = 1;                   // that work together
  uint32_t chunks = 1;                  // that a lane takes
  uint32_t invocations = kInvocations;  // of a workgroup
  uint32_t tile = 0;                    // of cooperative kernels, by its index in Device::tiles
  uint32_t mode = 0;                    // of page_select its AggMode, of attn_decode what it does: shaders/decode.h
};

class Pipelines {
 public:
  Status open(const Device& d);
  // Nothing may be running.
  void close(const Device& d);
  Status get(const Device& d, Kernel kernel, WeightType type, const Variant& variant, VkPipeline& out);
  VkPipelineLayout layout() const { return layout_; }

 private:
  // More than all kernels have variants together.
  static constexpr size_t kMostPipelines = 2048;
  struct Made {
    uint64_t key = 0;  // 0: none
    VkPipeline pipeline = VK_NULL_HANDLE;
  };
  // Where the pipeline is, or would be.
  Made& find(uint64_t key);
  VkPipelineLayout layout_ = VK_NULL_HANDLE;
  Made made_[kMostPipelines] = {};
};

}  // namespace weir::vulkan
