#include "vulkan/large_buffer.h"

#include <algorithm>

#include "core/memory.h"

namespace weir::vulkan {
namespace {

// The most that a piece has; drivers find a few gibibytes in a row more often than many.
constexpr uint64_t kPieceBytes = uint64_t{1} << 30;

VkResult allocate_piece(const Device& d, uint64_t bytes, VkDeviceMemory& out) {
  VkMemoryAllocateFlagsInfo flags = {};
  flags.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO;
  flags.flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT;
  VkMemoryAllocateInfo info = {};
  info.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO;
  info.pNext = &flags;
  info.allocationSize = bytes;
  info.memoryTypeIndex = d.local_type;
  return d.vk.vkAllocateMemory(d.device, &info, nullptr, &out);
}

// Binds a piece to the buffer's range from `offset` on, and waits.
VkResult bind_piece(const Device& d, VkBuffer buffer, VkDeviceMemory memory, uint64_t offset, uint64_t bytes) {
  VkSparseMemoryBind bind = {};
  bind.resourceOffset = offset;
  bind.size = bytes;
  bind.memory = memory;
  const VkSparseBufferMemoryBindInfo binds = {buffer, 1, &bind};
  VkBindSparseInfo info = {};
  info.sType = VK_STRUCTURE_TYPE_BIND_SPARSE_INFO;
  info.bufferBindCount = 1;
  info.pBufferBinds = &binds;
  const VkResult result = d.vk.vkQueueBindSparse(d.queue, 1, &info, VK_NULL_HANDLE);
  return result == VK_SUCCESS ? d.vk.vkQueueWaitIdle(d.queue) : result;
}

VkResult fill_buffer(const Device& d, VkBuffer buffer, Piece* pieces, size_t most, size_t& n_pieces) {
  VkMemoryRequirements needs;
  d.vk.vkGetBufferMemoryRequirements(d.device, buffer, &needs);
  const uint64_t wanted = std::min(kPieceBytes, d.max_bytes);
  const uint64_t whole = std::max(needs.alignment, wanted / needs.alignment * needs.alignment);
  for (uint64_t at = 0; at < needs.size; at += whole) {
    if (n_pieces == most) return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    const uint64_t bytes = std::min(whole, needs.size - at);
    VkDeviceMemory memory = VK_NULL_HANDLE;
    VkResult result = allocate_piece(d, bytes, memory);
    if (result != VK_SUCCESS) return result;
    pieces[n_pieces++] = {buffer, memory};
    result = bind_piece(d, buffer, memory, at, bytes);
    if (result != VK_SUCCESS) return result;
  }
  return VK_SUCCESS;
}

}  // namespace

void release_pieces(const Device& d, VkBuffer buffer, Piece* pieces, size_t& n_pieces) {
  const Piece* const end = std::remove_if(pieces, pieces + n_pieces, [&](const Piece& piece) {
    if (piece.buffer == buffer) d.vk.vkFreeMemory(d.device, piece.memory, nullptr);
    return piece.buffer == buffer;
  });
  n_pieces = static_cast<size_t>(end - pieces);
}

Status make_large_buffer(const Device& d, uint64_t bytes, Allocation& out, Piece* pieces, size_t most,
                         size_t& n_pieces) {
  const auto n = static_cast<unsigned long long>(bytes);
  if (!d.has_sparse || bytes > d.max_buffer_bytes) {
    return fail(WEIR_ERR_UNSUPPORTED, "Vulkan: %llu bytes in one allocation; %s gives at most %llu", n, d.traits.name,
                static_cast<unsigned long long>(d.max_allocated()));
  }
  if (bytes > d.traits.memory_bytes)
    return fail(WEIR_ERR_OUT_OF_MEMORY, "Vulkan, allocating %llu bytes: %s has %llu", n, d.traits.name,
                static_cast<unsigned long long>(d.traits.memory_bytes));
  VkBufferCreateInfo info = buffer_info(align_up(bytes, Memory::kAlignment));
  info.flags = VK_BUFFER_CREATE_SPARSE_BINDING_BIT;
  Allocation a;
  VkResult result = d.vk.vkCreateBuffer(d.device, &info, nullptr, &a.buffer);
  if (result == VK_SUCCESS) result = fill_buffer(d, a.buffer, pieces, most, n_pieces);
  if (result == VK_SUCCESS) {
    VkBufferDeviceAddressInfo address = {};
    address.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO;
    address.buffer = a.buffer;
    a.address = a.base = d.vk.vkGetBufferDeviceAddress(d.device, &address);
    a.bytes = info.size;
    out = a;
    if (a.address % Memory::kAlignment == 0) return {};
  }
  destroy_buffer(d, a);
  if (a.buffer != VK_NULL_HANDLE) release_pieces(d, a.buffer, pieces, n_pieces);
  if (result == VK_SUCCESS) return fail(WEIR_ERR_INTERNAL, "Vulkan, allocating %llu bytes: not aligned", n);
  return fail(code_of(result), "Vulkan, allocating %llu bytes: %s", n, result_name(result));
}

}  // namespace weir::vulkan
