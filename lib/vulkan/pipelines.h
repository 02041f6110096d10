// Pipelines, each made when it is first needed and kept as long as the device is open.
#pragma once

#include "vulkan/device.h"
#include "vulkan/kernels.h"

namespace weir::vulkan {

class Pipelines {
 public:
  Status open(const Device& d);
  // Nothing may be running.
  void close(const Device& d);
  // `columns`: rows of x in a pass, 1..kMostColumns; kernels that do not know it have one pipeline for each number of
  // them that is asked for, and are asked for one only.
  Status get(const Device& d, Kernel kernel, WeightType type, uint32_t columns, VkPipeline& out);
  VkPipelineLayout layout() const { return layout_; }

 private:
  // Powers of two up to kMostColumns.
  static constexpr size_t kWidths = 4;
  static_assert(1u << (kWidths - 1) == kMostColumns);
  VkPipelineLayout layout_ = VK_NULL_HANDLE;
  VkPipeline made_[kKernelCount][kWeightTypeCount][kWidths] = {};
};

}  // namespace weir::vulkan
