// Finding and opening a device.
#include "vulkan/device.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "models/layer.h"
#include "vulkan/cooperative_matrix.h"
#include "vulkan/kernels.h"

namespace weir::vulkan {
namespace {

constexpr uint32_t kMaxFamilies = 16, kMaxExtensions = 512, kMaxMatrices = 64;
constexpr uint32_t kAmd = 0x1002, kNvidia = 0x10DE, kIntel = 0x8086;  // vendors
constexpr uint32_t kVersion = VK_API_VERSION_1_3;
// On the processor. A few for each of its cores would do, and Vulkan does not tell how many there are; each costs the
// time of the whole kernel, even if it has nothing to do, because invocations that returned are masked.
constexpr uint32_t kMaxCpuGroups = 4;
// Some 100 ms on slow devices: operating systems end work that takes some two seconds, and many cannot interrupt a
// dispatch. Nobody ends that of the processor.
constexpr uint64_t kDiscreteFlops = 200'000'000'000, kOtherFlops = 20'000'000'000;

uint64_t max_flops_of(DeviceKind kind) {
  if (kind == DeviceKind::kCpu) return UINT64_MAX;
  return kind == DeviceKind::kDiscrete ? kDiscreteFlops : kOtherFlops;
}

DeviceKind kind_of(VkPhysicalDeviceType type) {
  switch (type) {
    case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU:
      return DeviceKind::kIntegrated;
    case VK_PHYSICAL_DEVICE_TYPE_CPU:
      return DeviceKind::kCpu;
    case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU:
      return DeviceKind::kDiscrete;
    default:
      return DeviceKind::kVirtual;
  }
}

VkPhysicalDeviceMemoryProperties memory_of(const Device& d, VkPhysicalDevice physical) {
  VkPhysicalDeviceMemoryProperties2 memory = {};
  memory.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2;
  d.vk.vkGetPhysicalDeviceMemoryProperties2(physical, &memory);
  return memory.memoryProperties;
}

constexpr uint32_t kAnyType = ~0u;

// Finds among the memory types whose bits are set in `types` that with these flags, preferably with `wish` too, in the
// largest heap of those; false: there is none.
bool find_type(const VkPhysicalDeviceMemoryProperties& m, uint32_t types, VkMemoryPropertyFlags need,
               VkMemoryPropertyFlags wish, uint32_t& out) {
  // Types that only some images may use, or that are slow on purpose.
  constexpr VkMemoryPropertyFlags kOdd = VK_MEMORY_PROPERTY_LAZILY_ALLOCATED_BIT | VK_MEMORY_PROPERTY_PROTECTED_BIT |
                                         VK_MEMORY_PROPERTY_DEVICE_COHERENT_BIT_AMD;
  constexpr uint64_t kWished = uint64_t{1} << 62;  // above every size
  uint64_t best = 0;
  for (uint32_t i = 0; i < m.memoryTypeCount; ++i) {
    const VkMemoryPropertyFlags flags = m.memoryTypes[i].propertyFlags;
    if ((types >> i & 1) == 0 || (flags & need) != need || (flags & kOdd) != 0) continue;
    const uint64_t rank = m.memoryHeaps[m.memoryTypes[i].heapIndex].size + ((flags & wish) == wish ? kWished : 0);
    if (rank <= best) continue;
    best = rank;
    out = i;
  }
  return best != 0;
}

// The first family that computes; one without graphics is not needed, as nothing is drawn.
bool find_family(const Device& d, VkPhysicalDevice physical, uint32_t& out) {
  VkQueueFamilyProperties families[kMaxFamilies];
  uint32_t n = kMaxFamilies;
  d.vk.vkGetPhysicalDeviceQueueFamilyProperties(physical, &n, families);
  for (uint32_t i = 0; i < n; ++i) {
    if ((families[i].queueFlags & VK_QUEUE_COMPUTE_BIT) == 0) continue;
    out = i;
    return true;
  }
  return false;
}

// What a device of Vulkan 1.3 says of itself. The chains lead through the object, which therefore stays where it is.
struct Properties {
  VkPhysicalDeviceVulkan13Properties v13 = {};
  VkPhysicalDeviceVulkan12Properties v12 = {};
  VkPhysicalDeviceVulkan11Properties v11 = {};
  VkPhysicalDeviceProperties2 all = {};

  Properties(const Device& d, VkPhysicalDevice physical) {
    v13.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_PROPERTIES;
    v12.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES;
    v12.pNext = &v13;
    v11.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES;
    v11.pNext = &v12;
    all.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2;
    all.pNext = &v11;
    d.vk.vkGetPhysicalDeviceProperties2(physical, &all);
  }
  Properties(const Properties&) = delete;
  Properties& operator=(const Properties&) = delete;
};

struct Features {
  VkPhysicalDeviceVulkan13Features v13 = {};
  VkPhysicalDeviceVulkan12Features v12 = {};
  VkPhysicalDeviceFeatures2 all = {};

  Features(const Device& d, VkPhysicalDevice physical) {
    v13.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES;
    v12.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES;
    v12.pNext = &v13;
    all.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
    all.pNext = &v12;
    d.vk.vkGetPhysicalDeviceFeatures2(physical, &all);
  }
  Features(const Features&) = delete;
  Features& operator=(const Features&) = delete;
};

// What Vulkan before 1.3 does not know must not be asked.
void read_traits(const Device& d, VkPhysicalDevice physical, DeviceTraits& t) {
  VkPhysicalDeviceProperties plain;
  d.vk.vkGetPhysicalDeviceProperties(physical, &plain);
  std::snprintf(t.name, sizeof(t.name), "%.255s", plain.deviceName);
  t.kind = kind_of(plain.deviceType);
  t.version = plain.apiVersion;
  t.invocations = std::min(plain.limits.maxComputeWorkGroupInvocations, plain.limits.maxComputeWorkGroupSize[0]);
  t.shared_bytes = plain.limits.maxComputeSharedMemorySize;
  t.push_bytes = plain.limits.maxPushConstantsSize;
  uint32_t family = 0, type = 0;
  t.compute_queue = find_family(d, physical, family);
  const VkPhysicalDeviceMemoryProperties memory = memory_of(d, physical);
  if (find_type(memory, kAnyType, VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, 0, type))
    t.memory_bytes = memory.memoryHeaps[memory.memoryTypes[type].heapIndex].size;
  if (t.version < kVersion) return;
  const Properties p(d, physical);
  std::snprintf(t.driver, sizeof(t.driver), "%.24s %.32s", p.v12.driverName, p.v12.driverInfo);
  t.min_lanes = p.v13.minSubgroupSize;
  t.in_compute = (p.v11.subgroupSupportedStages & VK_SHADER_STAGE_COMPUTE_BIT) != 0;
  t.shuffle = (p.v11.subgroupSupportedOperations & VK_SUBGROUP_FEATURE_SHUFFLE_BIT) != 0;
  t.arithmetic = (p.v11.subgroupSupportedOperations & VK_SUBGROUP_FEATURE_ARITHMETIC_BIT) != 0;
  const Features f(d, physical);
  t.addresses = f.v12.bufferDeviceAddress == VK_TRUE;
  t.full_subgroups = f.v13.computeFullSubgroups == VK_TRUE;
}

Status physical_devices(const Device& d, VkPhysicalDevice* out, uint32_t& n) {
  n = kMaxDevices;
  const VkResult result = d.vk.vkEnumeratePhysicalDevices(d.instance, &n, out);
  if (result == VK_ERROR_INITIALIZATION_FAILED) n = 0;  // the loader found no driver
  return result == VK_INCOMPLETE || n == 0 ? Status() : vulkan_status(result, "listing the devices");
}

bool has_extension(const Device& d, const char* name) {
  static VkExtensionProperties extensions[kMaxExtensions];  // 130 KiB; one thread at a time
  uint32_t n = kMaxExtensions;
  const VkResult result = d.vk.vkEnumerateDeviceExtensionProperties(d.physical, nullptr, &n, extensions);
  if (result != VK_SUCCESS && result != VK_INCOMPLETE) return false;
  return std::any_of(extensions, extensions + n,
                     [&](const VkExtensionProperties& e) { return std::strcmp(e.extensionName, name) == 0; });
}

bool family_binds_sparse(const Device& d) {
  VkQueueFamilyProperties families[kMaxFamilies];
  uint32_t n = kMaxFamilies;
  d.vk.vkGetPhysicalDeviceQueueFamilyProperties(d.physical, &n, families);
  return d.queue_family < n && (families[d.queue_family].queueFlags & VK_QUEUE_SPARSE_BINDING_BIT) != 0;
}

// Lanes of the subgroups that multiply matrices. 0: the device is none of those whose matrices are known to be faster
// than f32. On Intel's they are those of GPUs whose smallest subgroups have 16 lanes, from Xe2 on.
uint32_t matrix_lanes(const Device& d, const Properties& p) {
  const uint32_t vendor = p.all.properties.vendorID;
  if (vendor == kIntel) return p.v13.minSubgroupSize == 16 ? 16 : 0;
  const bool is_used = vendor == kNvidia || (vendor == kAmd && d.traits.kind == DeviceKind::kDiscrete) ||
                       d.traits.kind == DeviceKind::kCpu;
  return is_used ? p.v11.subgroupSize : 0;
}

bool is_product(const VkCooperativeMatrixPropertiesKHR& m) {
  return m.AType == VK_COMPONENT_TYPE_FLOAT16_KHR && m.BType == VK_COMPONENT_TYPE_FLOAT16_KHR &&
         m.CType == VK_COMPONENT_TYPE_FLOAT32_KHR && m.ResultType == VK_COMPONENT_TYPE_FLOAT32_KHR &&
         m.scope == VK_SCOPE_SUBGROUP_KHR && m.saturatingAccumulation == VK_FALSE;
}

// The largest that the shaders' tiles can be divided into, the first of equals.
Matrices best_matrices(Device& d, uint32_t lanes) {
  const auto list = reinterpret_cast<PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR>(
      d.vk.vkGetInstanceProcAddr(d.instance, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR"));
  VkCooperativeMatrixPropertiesKHR all[kMaxMatrices] = {};
  for (auto& m : all) m.sType = VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR;
  uint32_t n = kMaxMatrices;
  if (list == nullptr || list(d.physical, &n, all) < 0) return {};
  Matrices best;
  for (uint32_t i = 0; i < n; ++i) {
    const Matrices m = {all[i].MSize, all[i].NSize, all[i].KSize, lanes};
    if (is_product(all[i]) && m.m * m.n * m.k > best.m * best.n * best.k &&
        fit_tiles(m, d.traits.shared_bytes, d.tiles))
      best = m;
  }
  if (best.are_there()) (void)fit_tiles(best, d.traits.shared_bytes, d.tiles);
  return best;
}

bool can_have_lanes(const Properties& p, const Features& f, uint32_t lanes, uint32_t invocations) {
  return f.v13.subgroupSizeControl == VK_TRUE && lanes >= p.v13.minSubgroupSize && lanes <= p.v13.maxSubgroupSize &&
         invocations / lanes <= p.v13.maxComputeWorkgroupSubgroups &&
         (p.v13.requiredSubgroupSizeStages & VK_SHADER_STAGE_COMPUTE_BIT) != 0;
}

Matrices find_matrices(Device& d, const Properties& p, const Features& f) {
  const uint32_t lanes = matrix_lanes(d, p);
  if (shader_code(Kernel::kGemmCoop, WeightType::kF32).words == nullptr || lanes < kMinLanes || lanes > kInvocations ||
      f.v12.shaderFloat16 != VK_TRUE || f.v12.vulkanMemoryModel != VK_TRUE ||
      !can_have_lanes(p, f, lanes, kInvocations) || !has_extension(d, VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME))
    return {};
  VkPhysicalDeviceCooperativeMatrixFeaturesKHR matrices = {};
  matrices.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR;
  VkPhysicalDeviceFeatures2 all = {};
  all.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
  all.pNext = &matrices;
  d.vk.vkGetPhysicalDeviceFeatures2(d.physical, &all);
  return matrices.cooperativeMatrix == VK_TRUE ? best_matrices(d, lanes) : Matrices();
}

// Where a driver would choose a size for each kernel. 16 lanes are a guess, measured nowhere.
uint32_t step_lanes_of(const Properties& p, const Features& f, uint32_t invocations) {
  const uint32_t lanes = std::clamp(16u, p.v13.minSubgroupSize, std::max(p.v13.minSubgroupSize, p.v13.maxSubgroupSize));
  const bool is_open = p.v13.minSubgroupSize != p.v13.maxSubgroupSize;
  return is_open && lanes >= kMinLanes && can_have_lanes(p, f, lanes, invocations) ? lanes : 0;
}

CacheKey key_of(const VkPhysicalDeviceProperties& p) {
  CacheKey key;
  key.vendor = p.vendorID;
  key.device = p.deviceID;
  key.driver = p.driverVersion;
  static_assert(sizeof(key.uuid) == VK_UUID_SIZE);
  std::memcpy(key.uuid, p.pipelineCacheUUID, sizeof(key.uuid));
  key.code = shader_checksum();
  return key;
}

// Limits and options of the device that is opened.
void read_device(Device& d) {
  const Properties p(d, d.physical);
  const Features f(d, d.physical);
  d.max_bytes = std::min(p.v11.maxMemoryAllocationSize, p.v13.maxBufferSize);
  d.max_buffer_bytes = std::min(p.v13.maxBufferSize, p.all.properties.limits.sparseAddressSpaceSize);
  d.has_sparse = f.all.features.sparseBinding == VK_TRUE && family_binds_sparse(d);
  d.has_dot = f.v13.shaderIntegerDotProduct == VK_TRUE;
  d.has_budget = has_extension(d, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
  d.max_groups = d.traits.kind == DeviceKind::kCpu ? kMaxCpuGroups : UINT32_MAX;
  d.max_flops = max_flops_of(d.traits.kind);
  d.matrices = find_matrices(d, p, f);
  d.step_lanes = step_lanes_of(p, f, d.traits.invocations);
  d.cache_key = key_of(p.all.properties);
}

// Chooses among the memory types that buffers may lie in.
Status choose_memory(Device& d) {
  const VkBufferCreateInfo buffer = buffer_info(1);
  VkDeviceBufferMemoryRequirements asked = {};
  asked.sType = VK_STRUCTURE_TYPE_DEVICE_BUFFER_MEMORY_REQUIREMENTS;
  asked.pCreateInfo = &buffer;
  VkMemoryRequirements2 needs = {};
  needs.sType = VK_STRUCTURE_TYPE_MEMORY_REQUIREMENTS_2;
  d.vk.vkGetDeviceBufferMemoryRequirements(d.device, &asked, &needs);
  const uint32_t types = needs.memoryRequirements.memoryTypeBits;
  const VkPhysicalDeviceMemoryProperties memory = memory_of(d, d.physical);
  if (!find_type(memory, types, VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, 0, d.local_type))
    return fail(WEIR_ERR_UNSUPPORTED, "Vulkan: %s has no memory of its own", d.traits.name);
  d.local_heap = memory.memoryTypes[d.local_type].heapIndex;
  d.traits.memory_bytes = memory.memoryHeaps[d.local_heap].size;
  if (!find_type(memory, types, VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT,
                 VK_MEMORY_PROPERTY_HOST_CACHED_BIT, d.host_type)) {
    return fail(WEIR_ERR_UNSUPPORTED, "Vulkan: %s has no memory that the host sees", d.traits.name);
  }
  return {};
}

Status create_device(Device& d) {
  const float priority = 1.0f;
  VkDeviceQueueCreateInfo queue = {};
  queue.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO;
  queue.queueFamilyIndex = d.queue_family;
  queue.queueCount = 1;
  queue.pQueuePriorities = &priority;
  VkPhysicalDeviceVulkan13Features f13 = {};
  f13.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES;
  f13.computeFullSubgroups = VK_TRUE;
  f13.shaderIntegerDotProduct = d.has_dot ? VK_TRUE : VK_FALSE;
  f13.maintenance4 = VK_TRUE;  // every 1.3 has it; the workgroup size of SPIR-V 1.6 needs it
  VkPhysicalDeviceVulkan12Features f12 = {};
  f12.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES;
  f12.pNext = &f13;
  f12.bufferDeviceAddress = VK_TRUE;
  VkPhysicalDeviceCooperativeMatrixFeaturesKHR matrices = {};
  matrices.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR;
  matrices.cooperativeMatrix = VK_TRUE;
  if (d.step_lanes != 0) f13.subgroupSizeControl = VK_TRUE;
  if (d.matrices.are_there()) {
    f12.shaderFloat16 = f12.vulkanMemoryModel = f13.subgroupSizeControl = VK_TRUE;
    f13.pNext = &matrices;
  }
  VkDeviceCreateInfo info = {};
  info.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO;
  info.pNext = &f12;
  info.queueCreateInfoCount = 1;
  info.pQueueCreateInfos = &queue;
  const char* extensions[2];
  if (d.has_budget) extensions[info.enabledExtensionCount++] = VK_EXT_MEMORY_BUDGET_EXTENSION_NAME;
  if (d.matrices.are_there()) extensions[info.enabledExtensionCount++] = VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME;
  info.ppEnabledExtensionNames = extensions;
  VkPhysicalDeviceFeatures features = {};
  features.sparseBinding = d.has_sparse ? VK_TRUE : VK_FALSE;
  info.pEnabledFeatures = &features;
  VkDevice device = nullptr;
  WEIR_VK_TRY(d.vk.vkCreateDevice(d.physical, &info, nullptr, &device), "opening the device");
  const Status status = load_device_functions(device, d.vk);
  if (!status.ok()) {
    if (d.vk.vkDestroyDevice != nullptr) d.vk.vkDestroyDevice(device, nullptr);
    return status;
  }
  d.vk.vkGetDeviceQueue(device, d.queue_family, 0, &d.queue);
  d.device = device;
  return {};
}

}  // namespace

Status open_instance(const char* loader, Device& d) {
  if (d.instance != nullptr) return {};
  WEIR_TRY(load_loader(loader, d.vk));
  uint32_t version = 0;
  WEIR_VK_TRY(d.vk.vkEnumerateInstanceVersion(&version), "asking for the loader's version");
  if (version < kVersion) {
    return fail(WEIR_ERR_UNSUPPORTED, "Vulkan: the loader knows Vulkan %u.%u, 1.3 is needed",
                VK_API_VERSION_MAJOR(version), VK_API_VERSION_MINOR(version));
  }
  VkApplicationInfo application = {};
  application.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO;
  application.pApplicationName = "weir";
  application.apiVersion = kVersion;
  VkInstanceCreateInfo info = {};
  info.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO;
  info.pApplicationInfo = &application;
  VkInstance instance = nullptr;
  const VkResult result = d.vk.vkCreateInstance(&info, nullptr, &instance);
  if (result == VK_ERROR_INCOMPATIBLE_DRIVER)
    return fail(WEIR_ERR_UNSUPPORTED, "Vulkan: there is no driver (%s)", result_name(result));
  WEIR_TRY(vulkan_status(result, "making an instance"));
  const Status status = load_instance_functions(instance, d.vk);
  if (!status.ok()) {
    if (d.vk.vkDestroyInstance != nullptr) d.vk.vkDestroyInstance(instance, nullptr);
    return status;
  }
  d.instance = instance;
  return {};
}

Status list_devices(Device& d, DeviceTraits* devices, uint32_t& n) {
  VkPhysicalDevice physical[kMaxDevices];
  WEIR_TRY(physical_devices(d, physical, n));
  for (uint32_t i = 0; i < n; ++i) read_traits(d, physical[i], devices[i]);
  return {};
}

Status open_device(Device& d, uint32_t which) {
  VkPhysicalDevice physical[kMaxDevices];
  uint32_t n = 0;
  WEIR_TRY(physical_devices(d, physical, n));
  if (n == 0) return fail(WEIR_ERR_UNSUPPORTED, "Vulkan: there is no device");
  if (which >= n) return fail(WEIR_ERR_NOT_FOUND, "Vulkan: there is no device %u, there are %u", which, n);
  read_traits(d, physical[which], d.traits);
  WEIR_TRY(check_traits(d.traits));
  d.physical = physical[which];
  d.index = which;
  (void)find_family(d, d.physical, d.queue_family);  // check_traits has seen one
  read_device(d);
  WEIR_TRY(create_device(d));
  return choose_memory(d);
}

void close_device(Device& d) {
  if (d.device != nullptr) d.vk.vkDestroyDevice(d.device, nullptr);
  d.device = nullptr;
  d.queue = nullptr;
}

VkBufferCreateInfo buffer_info(uint64_t bytes) {
  VkBufferCreateInfo info = {};
  info.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO;
  info.size = bytes;
  info.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
               VK_BUFFER_USAGE_TRANSFER_DST_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT;
  info.sharingMode = VK_SHARING_MODE_EXCLUSIVE;
  return info;
}

uint64_t free_bytes(const Device& d) {
  VkPhysicalDeviceMemoryBudgetPropertiesEXT budget = {};
  budget.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT;
  VkPhysicalDeviceMemoryProperties2 memory = {};
  memory.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2;
  if (d.has_budget) memory.pNext = &budget;
  d.vk.vkGetPhysicalDeviceMemoryProperties2(d.physical, &memory);
  if (!d.has_budget) return memory.memoryProperties.memoryHeaps[d.local_heap].size;
  const uint64_t all = budget.heapBudget[d.local_heap], used = budget.heapUsage[d.local_heap];
  return all > used ? all - used : 0;
}

}  // namespace weir::vulkan
