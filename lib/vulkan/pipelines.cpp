#include "vulkan/pipelines.h"

#include <bit>

namespace weir::vulkan {

Status Pipelines::open(const Device& d) {
  VkPushConstantRange range = {};
  range.stageFlags = VK_SHADER_STAGE_COMPUTE_BIT;
  range.size = kLeastPush;
  VkPipelineLayoutCreateInfo info = {};
  info.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO;
  info.pushConstantRangeCount = 1;
  info.pPushConstantRanges = &range;
  return vulkan_status(d.vk.vkCreatePipelineLayout(d.device, &info, nullptr, &layout_), "making a pipeline layout");
}

void Pipelines::close(const Device& d) {
  for (auto& types : made_) {
    for (auto& widths : types) {
      for (VkPipeline& made : widths) {
        if (made != VK_NULL_HANDLE) d.vk.vkDestroyPipeline(d.device, made, nullptr);
        made = VK_NULL_HANDLE;
      }
    }
  }
  if (layout_ != VK_NULL_HANDLE) d.vk.vkDestroyPipelineLayout(d.device, layout_, nullptr);
  layout_ = VK_NULL_HANDLE;
}

Status Pipelines::get(const Device& d, Kernel kernel, WeightType type, uint32_t columns, VkPipeline& out) {
  const auto width = static_cast<size_t>(std::bit_width(columns - 1));  // the power of two that is not below
  if (columns == 0 || width >= kWidths) return fail(WEIR_ERR_INTERNAL, "Vulkan: a pass over %u columns", columns);
  VkPipeline& made = made_[static_cast<size_t>(kernel)][static_cast<size_t>(type)][width];
  out = made;
  if (made != VK_NULL_HANDLE) return {};
  const ShaderCode code = shader_code(kernel, type);
  VkShaderModuleCreateInfo module_info = {};
  module_info.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO;
  module_info.codeSize = code.bytes;
  module_info.pCode = code.words;
  VkShaderModule module = VK_NULL_HANDLE;
  WEIR_VK_TRY(d.vk.vkCreateShaderModule(d.device, &module_info, nullptr, &module), code.name);
  const uint32_t passes = 1u << width;
  const VkSpecializationMapEntry entry = {0, 0, sizeof(passes)};
  const VkSpecializationInfo constants = {1, &entry, sizeof(passes), &passes};
  VkComputePipelineCreateInfo info = {};
  info.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO;
  info.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
  info.stage.flags = VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT;
  info.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
  info.stage.module = module;
  info.stage.pName = "main";
  info.stage.pSpecializationInfo = &constants;
  info.layout = layout_;
  const VkResult result = d.vk.vkCreateComputePipelines(d.device, VK_NULL_HANDLE, 1, &info, nullptr, &made);
  d.vk.vkDestroyShaderModule(d.device, module, nullptr);
  if (result != VK_SUCCESS) made = VK_NULL_HANDLE;
  out = made;
  return vulkan_status(result, code.name);
}

}  // namespace weir::vulkan
