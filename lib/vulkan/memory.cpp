// Buffers and their table.
#include "vulkan/memory.h"

#include <algorithm>
#include <span>

#include "core/memory.h"
#include "vulkan/large_buffer.h"

namespace weir::vulkan {
namespace {

VkResult bind_memory(const Device& d, uint32_t memory_type, Allocation& a) {
  VkMemoryRequirements needs;
  d.vk.vkGetBufferMemoryRequirements(d.device, a.buffer, &needs);
  if ((needs.memoryTypeBits & 1u << memory_type) == 0) return VK_ERROR_FEATURE_NOT_PRESENT;
  VkMemoryAllocateFlagsInfo flags = {};
  flags.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO;
  flags.flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT;
  VkMemoryAllocateInfo info = {};
  info.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO;
  info.pNext = &flags;
  info.allocationSize = needs.size;
  info.memoryTypeIndex = memory_type;
  const VkResult result = d.vk.vkAllocateMemory(d.device, &info, nullptr, &a.memory);
  return result == VK_SUCCESS ? d.vk.vkBindBufferMemory(d.device, a.buffer, a.memory, 0) : result;
}

VkResult try_buffer(const Device& d, uint64_t bytes, uint32_t memory_type, Allocation& a) {
  const VkBufferCreateInfo info = buffer_info(bytes);
  VkResult result = d.vk.vkCreateBuffer(d.device, &info, nullptr, &a.buffer);
  if (result != VK_SUCCESS) return result;
  result = bind_memory(d, memory_type, a);
  if (result != VK_SUCCESS) return result;
  VkBufferDeviceAddressInfo address = {};
  address.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO;
  address.buffer = a.buffer;
  a.base = d.vk.vkGetBufferDeviceAddress(d.device, &address);
  return VK_SUCCESS;
}

}  // namespace

void destroy_buffer(const Device& d, const Allocation& a) {
  if (a.buffer != VK_NULL_HANDLE) d.vk.vkDestroyBuffer(d.device, a.buffer, nullptr);
  if (a.memory != VK_NULL_HANDLE) d.vk.vkFreeMemory(d.device, a.memory, nullptr);
}

Status make_buffer(const Device& d, uint64_t bytes, uint32_t memory_type, Allocation& out, void** mapped) {
  const auto n = static_cast<unsigned long long>(bytes);
  if (bytes > d.max_bytes) {
    return fail(WEIR_ERR_UNSUPPORTED, "Vulkan: %llu bytes in one allocation; %s gives at most %llu", n, d.traits.name,
                static_cast<unsigned long long>(d.max_bytes));
  }
  const uint64_t rounded = align_up(bytes, Memory::kAlignment);
  // Few drivers align less than that; there the buffer is a little larger.
  for (const uint64_t slack : {uint64_t{0}, Memory::kAlignment}) {
    Allocation a;
    VkResult result = try_buffer(d, rounded + slack, memory_type, a);
    if (result == VK_SUCCESS && mapped != nullptr)
      result = d.vk.vkMapMemory(d.device, a.memory, 0, VK_WHOLE_SIZE, 0, mapped);
    a.address = align_up(a.base, Memory::kAlignment);
    a.bytes = rounded;
    if (result == VK_SUCCESS && a.address + a.bytes <= a.base + rounded + slack) {
      out = a;
      return {};
    }
    destroy_buffer(d, a);
    if (result != VK_SUCCESS) return fail(code_of(result), "Vulkan, allocating %llu bytes: %s", n, result_name(result));
  }
  return fail(WEIR_ERR_INTERNAL, "Vulkan, allocating %llu bytes: not aligned", n);
}

Status Memory::check_room(uint64_t bytes) const {
  if (n_ < kMax && n_staged_ < kMaxStaged) return {};
  return fail(WEIR_ERR_OUT_OF_MEMORY, "Vulkan, allocating %llu bytes: there are %zu allocations already, %zu mapped",
              static_cast<unsigned long long>(bytes), n_, n_staged_);
}

Status Memory::allocate(const Device& d, uint64_t bytes, void** out) {
  *out = nullptr;
  WEIR_TRY(check_room(bytes));
  Allocation a;
  if (bytes > d.max_bytes) {
    WEIR_TRY(make_large_buffer(d, bytes, a, pieces_, kMaxPieces, n_pieces_));
  } else {
    WEIR_TRY(make_buffer(d, std::max<uint64_t>(bytes, 1), d.local_type, a, nullptr));
  }
  insert(a);
  *out = reinterpret_cast<void*>(a.address);
  return {};
}

void Memory::insert(const Allocation& a) {
  Allocation* const at = std::upper_bound(table_, table_ + n_, a.address,
                                          [](uint64_t address, const Allocation& o) { return address < o.address; });
  std::copy_backward(at, table_ + n_, table_ + n_ + 1);
  *at = a;
  ++n_;
}

const Allocation* Memory::find(uint64_t address, uint64_t bytes) const {
  const Allocation* after = std::upper_bound(table_, table_ + n_, address,
                                             [](uint64_t wanted, const Allocation& o) { return wanted < o.address; });
  if (after == table_) return nullptr;
  const Allocation& a = after[-1];
  const uint64_t offset = address - a.address;
  return offset <= a.bytes && bytes <= a.bytes - offset ? &a : nullptr;
}

Status Memory::release(const Device& d, void* device) {
  const auto address = reinterpret_cast<uint64_t>(device);
  const Allocation* const found = find(address, 1);
  if (found == nullptr || found->address != address)
    return fail(WEIR_ERR_INTERNAL, "Vulkan: memory that was not allocated is released");
  destroy_buffer(d, *found);
  if (found->memory == VK_NULL_HANDLE) release_pieces(d, found->buffer, pieces_, n_pieces_);
  std::copy(found + 1, static_cast<const Allocation*>(table_ + n_), table_ + (found - table_));
  --n_;
  return {};
}

Status Memory::allocate_staging(const Device& d, uint64_t bytes, uint64_t alignment, void** host) {
  *host = nullptr;
  WEIR_TRY(check_room(bytes));
  Allocation a;
  void* mapped = nullptr;
  WEIR_TRY(make_buffer(d, bytes + alignment, d.host_type, a, &mapped));
  const auto at = reinterpret_cast<uint64_t>(mapped), shift = align_up(at, alignment) - at;
  insert(a);
  staged_[n_staged_++] = {static_cast<std::byte*>(mapped) + shift, a.base + shift, bytes};
  *host = staged_[n_staged_ - 1].host;
  return {};
}

Status Memory::release_staging(const Device& d, void* host) {
  Staged* const end = staged_ + n_staged_;
  Staged* const found = std::find_if(staged_, end, [host](const Staged& s) { return s.host == host; });
  if (found == end) return fail(WEIR_ERR_INTERNAL, "Vulkan: staging memory that was not allocated is released");
  const Allocation* const a = find(found->address, 1);
  *found = end[-1];
  --n_staged_;
  return release(d, reinterpret_cast<void*>(a->address));
}

uint64_t Memory::staged_address(const void* host, uint64_t bytes) const {
  const auto at = reinterpret_cast<uint64_t>(host);
  for (const Staged& s : std::span(staged_, n_staged_)) {
    const auto first = reinterpret_cast<uint64_t>(s.host);
    if (at >= first && at - first <= s.bytes && bytes <= s.bytes - (at - first)) return s.address + (at - first);
  }
  return 0;
}

}  // namespace weir::vulkan
