#include "vulkan/pipelines.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <memory_resource>

#include "core/machine_limits.h"
#include "core/thread_pool.h"
#include "device/kernels/gemv.h"

namespace weir::vulkan {
namespace {

// What a pipeline is specialised by: constant i is word i.
struct Constants {
  Variant variant;
  // Constants of cooperative kernels.
  uint32_t m = 0, n = 0, k = 0;
  uint32_t tokens = 0, rows = 0, step = 0;
  uint32_t down = 0, across = 0;
};
constexpr uint32_t kModeBits = 4;
constexpr uint32_t kConstants = sizeof(Constants) / sizeof(uint32_t);
static_assert(offsetof(Constants, m) == 6 * sizeof(uint32_t));

// Lanes of the kernel's subgroups; 0: as the driver likes.
uint32_t lanes_of(const Device& d, Kernel kernel) {
  switch (kernel) {
    case Kernel::kStepPack:
    case Kernel::kStepGemv:
    case Kernel::kStepGlu:
    case Kernel::kStepGemvMany:
    case Kernel::kStepGluMany:
      return d.step_lanes;
    default:
      return is_cooperative(kernel) ? d.matrices.lanes : 0;
  }
}

Constants constants_of(const Device& d, Kernel kernel, const Variant& v) {
  if (!is_cooperative(kernel)) return {v};
  const Matrices& m = d.matrices;
  const MatrixTile& tile = d.tiles[v.tile];
  return {.variant = v,
          .m = m.m,
          .n = m.n,
          .k = m.k,
          .tokens = tile.tokens,
          .rows = tile.rows,
          .step = tile.step,
          .down = subgroups_down(tile, m),
          .across = subgroups_across(tile, m)};
}

}  // namespace

Status Pipelines::open(const Device& d) {
  VkPushConstantRange range = {};
  range.stageFlags = VK_SHADER_STAGE_COMPUTE_BIT;
  range.size = kMinPush;
  VkPipelineLayoutCreateInfo info = {};
  info.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO;
  info.pushConstantRangeCount = 1;
  info.pPushConstantRanges = &range;
  return vulkan_status(d.vk.vkCreatePipelineLayout(d.device, &info, nullptr, &layout_), "making a pipeline layout");
}

void Pipelines::close(const Device& d) {
  for (Made& made : made_) {
    if (made.key != 0) d.vk.vkDestroyPipeline(d.device, made.pipeline, nullptr);
    made = {};
  }
  if (layout_ != VK_NULL_HANDLE) d.vk.vkDestroyPipelineLayout(d.device, layout_, nullptr);
  layout_ = VK_NULL_HANDLE;
  cache_ = VK_NULL_HANDLE;
  n_made_ = 0;
}

// Open addressing: the table is never full.
Pipelines::Made& Pipelines::find(uint64_t key) {
  constexpr uint64_t kMixer = 0x9E3779B97F4A7C15;
  size_t at = (key * kMixer >> 32) % kMaxPipelines;
  while (made_[at].key != 0 && made_[at].key != key) at = (at + 1) % kMaxPipelines;
  return made_[at];
}

Status Pipelines::recipe_of(const Device& d, Kernel kernel, WeightType type, const Variant& v, Recipe& out) {
  if (v.columns == 0 || v.columns > kMaxColumns || v.lanes > UINT8_MAX || v.chunks > UINT8_MAX ||
      v.invocations > UINT16_MAX || v.tile >= d.tiles.size() || v.mode >= 1u << kModeBits)
    return fail(WEIR_ERR_INTERNAL, "Vulkan: a pass over %u columns by %u lanes", v.columns, v.lanes);
  out = {1, kernel, type, v};
  out.variant.columns = std::bit_ceil(v.columns);
  const auto add = [&](uint64_t value, uint32_t bits) { out.key = out.key << bits | value; };
  add(static_cast<uint64_t>(kernel), 8);
  add(static_cast<uint64_t>(type), 8);
  add(out.variant.columns, 4);
  add(v.lanes, 8);
  add(v.chunks, 8);
  add(v.invocations, 16);
  add(v.tile, 4);
  add(v.mode, kModeBits);
  return {};
}

// Any thread; several may make different ones.
void Pipelines::make(const Device& d, Recipe& r) const {
  const ShaderCode code = shader_code(r.kernel, r.type);
  VkShaderModuleCreateInfo module_info = {};
  module_info.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO;
  module_info.codeSize = code.bytes;
  module_info.pCode = code.words;
  VkShaderModule module = VK_NULL_HANDLE;
  r.result = d.vk.vkCreateShaderModule(d.device, &module_info, nullptr, &module);
  if (r.result != VK_SUCCESS) return;
  const Constants values = constants_of(d, r.kernel, r.variant);
  VkSpecializationMapEntry entries[kConstants];
  for (uint32_t i = 0; i < kConstants; ++i) entries[i] = {i, i * 4, 4};
  const VkSpecializationInfo constants = {kConstants, entries, sizeof(values), &values};
  VkPipelineShaderStageRequiredSubgroupSizeCreateInfo lanes = {};
  lanes.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO;
  lanes.requiredSubgroupSize = lanes_of(d, r.kernel);
  VkComputePipelineCreateInfo info = {};
  info.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO;
  info.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
  if (lanes.requiredSubgroupSize != 0) info.stage.pNext = &lanes;
  info.stage.flags = VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT;
  info.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
  info.stage.module = module;
  info.stage.pName = "main";
  info.stage.pSpecializationInfo = &constants;
  info.layout = layout_;
  r.result = d.vk.vkCreateComputePipelines(d.device, cache_, 1, &info, nullptr, &r.made);
  d.vk.vkDestroyShaderModule(d.device, module, nullptr);
  if (r.result != VK_SUCCESS) r.made = VK_NULL_HANDLE;
}

Status Pipelines::get(const Device& d, Kernel kernel, WeightType type, const Variant& v, VkPipeline& out) {
  Recipe recipe;
  WEIR_TRY(recipe_of(d, kernel, type, v, recipe));
  Made& made = find(recipe.key);
  if (made.key == 0) {
    make(d, recipe);
    WEIR_VK_TRY(recipe.result, shader_code(kernel, type).name);
    made = {recipe.key, recipe.made};
    ++n_made_;
  }
  out = made.pipeline;
  return {};
}

Status Pipelines::note(const Device& d, Kernel kernel, WeightType type, const Variant& v) {
  Recipe recipe;
  WEIR_TRY(recipe_of(d, kernel, type, v, recipe));
  const Recipe *const begin = noted_, *const end = begin + n_noted_;
  const bool is_known = find(recipe.key).key != 0 ||
                        std::any_of(begin, end, [&](const Recipe& other) { return other.key == recipe.key; });
  if (!is_known && n_noted_ < kMaxNoted) noted_[n_noted_++] = recipe;
  return {};
}

// Without threads the caller makes them alone.
Status Pipelines::make_noted(const Device& d) {
  const uint32_t n = n_noted_;
  n_noted_ = 0;
  if (n == 0) return {};
  std::byte room[1024];
  std::pmr::monotonic_buffer_resource memory(room, sizeof(room), std::pmr::null_memory_resource());
  ThreadPool pool(&memory);
  (void)pool.start(std::min({machine_threads(), n, kMaxThreads}));
  {
    const ThreadPool::Lease lease(pool);
    pool.parallel_for(n, [&](size_t i, size_t) { make(d, noted_[i]); });
  }
  const Recipe* failed = nullptr;
  for (Recipe* r = noted_; r != noted_ + n; ++r) {
    if (r->result == VK_SUCCESS) {
      find(r->key) = {r->key, r->made};
      ++n_made_;
    }
    if (r->result != VK_SUCCESS && failed == nullptr) failed = r;
  }
  return failed == nullptr ? Status() : vulkan_status(failed->result, shader_code(failed->kernel, failed->type).name);
}

}  // namespace weir::vulkan
