// Recording, submitting and waiting.
#include "vulkan/recorder.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "core/clock.h"
#include "core/memory.h"

namespace weir::vulkan {
namespace {

// A step takes a few milliseconds: so long the host asks again and again, because waking up takes part of one.
constexpr uint64_t kPollNs = 5'000'000;
constexpr uint64_t kStagingAlignment = 64;  // of pieces in staging memory, so that memcpy is fast

uint64_t address_of(const void* device) { return reinterpret_cast<uint64_t>(device); }

constexpr VkPipelineStageFlags kCompute = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
                               kTransfer = VK_PIPELINE_STAGE_TRANSFER_BIT;

VkAccessFlags accesses(VkPipelineStageFlags stages, bool also_reads) {
  VkAccessFlags flags = 0;
  if ((stages & kCompute) != 0) flags |= VK_ACCESS_SHADER_WRITE_BIT | (also_reads ? VK_ACCESS_SHADER_READ_BIT : 0);
  if ((stages & kTransfer) != 0) flags |= VK_ACCESS_TRANSFER_WRITE_BIT | (also_reads ? VK_ACCESS_TRANSFER_READ_BIT : 0);
  if ((stages & VK_PIPELINE_STAGE_HOST_BIT) != 0) flags |= VK_ACCESS_HOST_READ_BIT;
  return flags;
}

// What was written in `from` is there for what follows in `to`.
void memory_barrier(const Device& d, VkCommandBuffer commands, VkPipelineStageFlags from, VkPipelineStageFlags to) {
  VkMemoryBarrier barrier = {};
  barrier.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER;
  barrier.srcAccessMask = accesses(from, false);
  barrier.dstAccessMask = accesses(to, true);
  d.vk.vkCmdPipelineBarrier(commands, from, to, 0, 1, &barrier, 0, nullptr, 0, nullptr);
}

}  // namespace

uvec2 Touches::add(const void* device, uint64_t bytes, bool written) {
  const uint64_t address = address_of(device);
  if (device == nullptr) return {0, 0};
  // One more than there is room for makes the command's check fail.
  if (n_ < kMaxRanges) ranges_[n_++] = {address, bytes, written};
  return {static_cast<uint>(address), static_cast<uint>(address >> 32)};
}

Status Recorder::make_commands(const Device& d, VkCommandPool pool, VkCommandBuffer& out) {
  VkCommandBufferAllocateInfo buffer = {};
  buffer.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO;
  buffer.commandPool = pool;
  buffer.level = VK_COMMAND_BUFFER_LEVEL_PRIMARY;
  buffer.commandBufferCount = 1;
  return vulkan_status(d.vk.vkAllocateCommandBuffers(d.device, &buffer, &out), "making a command buffer");
}

Status Recorder::open(const Device& d) {
  VkCommandPoolCreateInfo pool = {};
  pool.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO;
  pool.queueFamilyIndex = d.queue_family;
  WEIR_VK_TRY(d.vk.vkCreateCommandPool(d.device, &pool, nullptr, &pool_), "making a command pool");
  WEIR_VK_TRY(d.vk.vkCreateCommandPool(d.device, &pool, nullptr, &recorded_pool_), "making a command pool");
  WEIR_TRY(make_commands(d, pool_, commands_));
  VkFenceCreateInfo fence = {};
  fence.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO;
  WEIR_VK_TRY(d.vk.vkCreateFence(d.device, &fence, nullptr, &fence_), "making a fence");
  void* mapped = nullptr;
  WEIR_TRY(make_buffer(d, kStagingBytes, d.host_type, staging_, &mapped));
  mapped_ = static_cast<std::byte*>(mapped) + (staging_.address - staging_.base);
  return {};
}

void Recorder::close(const Device& d) {
  if (fence_ != VK_NULL_HANDLE) d.vk.vkDestroyFence(d.device, fence_, nullptr);
  for (const VkCommandPool pool : {pool_, recorded_pool_})  // and their command buffers
    if (pool != VK_NULL_HANDLE) d.vk.vkDestroyCommandPool(d.device, pool, nullptr);
  destroy_buffer(d, staging_);
  *this = Recorder();
}

Status Recorder::begin(const Device& d) {
  WEIR_TRY(refuse_lost());
  if (recording_ || recorded_ != nullptr) return {};
  if (launched_) WEIR_TRY(wait(d));  // one fence
  VkCommandBufferBeginInfo info = {};
  info.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO;
  info.flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT;
  WEIR_VK_TRY(d.vk.vkBeginCommandBuffer(commands_, &info), "beginning a command buffer");
  recording_ = true;
  return {};
}

// Barriers between kernels alone are cheaper on some devices than those with copies, and most are such. A copy then has
// to wait by a barrier of its own, whatever it reads.
void Recorder::touch(const Device& d, const Range* ranges, size_t n, bool is_copy) {
  bool waits = hazards_.add(ranges, n) || always_barrier_;
  if (is_copy && kernels_only_) {
    hazards_.clear();
    (void)hazards_.add(ranges, n);
    waits = true;
  }
  if (!waits) {
    has_copies_ = has_copies_ || is_copy;
    return;
  }
  ++n_barriers_;
  const VkPipelineStageFlags stages = is_copy || has_copies_ ? kCompute | kTransfer : kCompute;
  memory_barrier(d, target(), stages, stages);
  kernels_only_ = stages == kCompute;
  has_copies_ = is_copy;
}

// What an op forgot to declare would race without anybody seeing it, on some devices and on some days.
Status Recorder::check(const Memory& memory, const Run& run, const Touches& touches) const {
  const char* const name = shader_code(run.kernel, run.type).name;
  if (touches.count() == kMaxRanges) return fail(WEIR_ERR_INTERNAL, "Vulkan: %s has too many ranges", name);
  for (size_t i = 0; i < touches.count(); ++i) {
    const Range& range = touches.ranges()[i];
    if (memory.find(range.address, range.bytes) == nullptr)
      return fail(WEIR_ERR_INTERNAL, "Vulkan: range %zu of %s is not in device memory", i, name);
  }
  for (size_t i = 0; i < run.n_addresses; ++i) {
    uvec2 words;
    std::memcpy(&words, static_cast<const std::byte*>(run.push) + i * sizeof(words), sizeof(words));
    const uint64_t address = uint64_t{words.y} << 32 | words.x;
    if (address == 0) continue;
    const bool declared = std::any_of(touches.ranges(), touches.ranges() + touches.count(), [&](const Range& r) {
      return address >= r.address && address < r.address + r.bytes;
    });
    if (!declared) return fail(WEIR_ERR_INTERNAL, "Vulkan: %s declares no range for its address %zu", name, i);
  }
  return {};
}

Status Recorder::dispatch(const Device& d, const Memory& memory, Pipelines& pipelines, const Run& run,
                          const Touches& touches, Grid grid) {
  WEIR_TRY(check(memory, run, touches));
  if (noting_) return pipelines.note(d, run.kernel, run.type, run.variant);
  uvec2 address = {0, 0};
  const bool in_memory = run.push_bytes > kMinPush;
  if (in_memory) WEIR_TRY(place_arguments(d, run, address));
  WEIR_TRY(begin(d));
  VkPipeline pipeline = VK_NULL_HANDLE;
  WEIR_TRY(pipelines.get(d, run.kernel, run.type, run.variant, pipeline));
  touch(d, touches.ranges(), touches.count(), false);
  d.vk.vkCmdBindPipeline(target(), VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
  d.vk.vkCmdPushConstants(target(), pipelines.layout(), VK_SHADER_STAGE_COMPUTE_BIT, 0,
                          static_cast<uint32_t>(in_memory ? sizeof(address) : run.push_bytes),
                          in_memory ? &address : run.push);
  d.vk.vkCmdDispatch(target(), grid.x, grid.y, 1);
  return {};
}

// In staging memory; those of recorded work are copied from there when all are known.
Status Recorder::place_arguments(const Device& d, const Run& run, uvec2& address) {
  uint64_t n = 0, offset = 0;
  if (recorded_ != nullptr && staging_used_ + run.push_bytes > recorded_->arguments.bytes)
    return fail(WEIR_ERR_INTERNAL, "Vulkan: recorded work has more arguments than there is room for");
  WEIR_TRY(take_staging(d, run.push_bytes, n, offset));
  std::memcpy(mapped_ + offset, run.push, run.push_bytes);
  const uint64_t at = (recorded_ != nullptr ? recorded_->arguments.address : staging_.address) + offset;
  address = {static_cast<uint>(at), static_cast<uint>(at >> 32)};
  return {};
}

Status Recorder::take_staging(const Device& d, uint64_t bytes, uint64_t& n, uint64_t& offset) {
  if (recorded_ != nullptr && bytes > kStagingBytes - staging_used_)
    return fail(WEIR_ERR_INTERNAL, "Vulkan: recorded work has too many arguments");
  // A piece of a large copy should fill the memory; what does not fit otherwise waits, too.
  if (bytes > kStagingBytes - staging_used_ && staging_used_ > 0) WEIR_TRY(wait(d));
  WEIR_TRY(begin(d));
  n = std::min(bytes, kStagingBytes);
  offset = staging_used_;
  staging_used_ = align_up(staging_used_ + n, kStagingAlignment);
  return {};
}

Status Recorder::copy_in(const Device& d, const Memory& memory, void* to, const void* host, uint64_t bytes) {
  if (const uint64_t staged = memory.staged_address(host, bytes); staged != 0)
    return copy(d, memory, to, reinterpret_cast<const void*>(staged), bytes);
  const Allocation* const a = memory.find(address_of(to), bytes);
  if (a == nullptr || recorded_ != nullptr)
    return fail(WEIR_ERR_INTERNAL, "Vulkan: a copy to what is not device memory");
  for (uint64_t done = 0; done < bytes;) {
    uint64_t n = 0, offset = 0;
    WEIR_TRY(take_staging(d, bytes - done, n, offset));
    std::memcpy(mapped_ + offset, static_cast<const std::byte*>(host) + done, n);
    const Range range = {address_of(to) + done, n, true};
    touch(d, &range, 1, true);
    const VkBufferCopy region = {staging_.address - staging_.base + offset, range.address - a->base, n};
    d.vk.vkCmdCopyBuffer(commands_, staging_.buffer, a->buffer, 1, &region);
    done += n;
  }
  return {};
}

Status Recorder::copy_out(const Device& d, const Memory& memory, void* host, const void* from, uint64_t bytes) {
  if (const uint64_t staged = memory.staged_address(host, bytes); staged != 0)
    return copy(d, memory, reinterpret_cast<void*>(staged), from, bytes);
  const Allocation* const a = memory.find(address_of(from), bytes);
  if (a == nullptr || recorded_ != nullptr)
    return fail(WEIR_ERR_INTERNAL, "Vulkan: a copy from what is not device memory");
  for (uint64_t done = 0; done < bytes;) {
    if (n_arrivals_ == kMaxArrivals) WEIR_TRY(wait(d));
    uint64_t n = 0, offset = 0;
    WEIR_TRY(take_staging(d, bytes - done, n, offset));
    const Range range = {address_of(from) + done, n, false};
    touch(d, &range, 1, true);
    const VkBufferCopy region = {range.address - a->base, staging_.address - staging_.base + offset, n};
    d.vk.vkCmdCopyBuffer(commands_, a->buffer, staging_.buffer, 1, &region);
    arrivals_[n_arrivals_++] = {static_cast<std::byte*>(host) + done, offset, n};
    done += n;
  }
  return {};
}

Status Recorder::copy(const Device& d, const Memory& memory, void* to, const void* from, uint64_t bytes) {
  const Allocation *const a = memory.find(address_of(to), bytes), *const b = memory.find(address_of(from), bytes);
  if (a == nullptr || b == nullptr) return fail(WEIR_ERR_INTERNAL, "Vulkan: a copy of what is not device memory");
  if (bytes == 0 || noting_) return {};
  WEIR_TRY(begin(d));
  const Range ranges[2] = {{address_of(to), bytes, true}, {address_of(from), bytes, false}};
  touch(d, ranges, 2, true);
  const VkBufferCopy region = {ranges[1].address - b->base, ranges[0].address - a->base, bytes};
  d.vk.vkCmdCopyBuffer(target(), b->buffer, a->buffer, 1, &region);
  return {};
}

// Vulkan fills whole words; bytes before and after them are copied.
Status Recorder::fill(const Device& d, const Memory& memory, void* to, uint8_t value, uint64_t bytes) {
  std::byte edge[4];
  std::memset(edge, value, sizeof(edge));
  auto* at = static_cast<std::byte*>(to);
  const uint64_t head = std::min(bytes, (4 - address_of(to) % 4) % 4), words = (bytes - head) / 4 * 4;
  const Allocation* const a = memory.find(address_of(to), bytes);
  if (a == nullptr) return fail(WEIR_ERR_INTERNAL, "Vulkan: filling what is not device memory");
  if (noting_) return {};
  if (head != 0) WEIR_TRY(copy_in(d, memory, at, edge, head));
  if (words != 0) {
    WEIR_TRY(begin(d));
    const Range range = {address_of(to) + head, words, true};
    touch(d, &range, 1, true);
    d.vk.vkCmdFillBuffer(target(), a->buffer, range.address - a->base, words, value * 0x01010101u);
  }
  return copy_in(d, memory, at + head + words, edge, bytes - head - words);
}

// What was written is there for the host, and for the next commands.
Status Recorder::end_commands(const Device& d, VkCommandBuffer commands) {
  memory_barrier(d, commands, kCompute | kTransfer, VK_PIPELINE_STAGE_HOST_BIT | kCompute | kTransfer);
  return vulkan_status(d.vk.vkEndCommandBuffer(commands), "ending a command buffer");
}

Status Recorder::submit(const Device& d, const VkCommandBuffer* commands, uint32_t n) {
  VkSubmitInfo info = {};
  info.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO;
  info.commandBufferCount = n;
  info.pCommandBuffers = commands;
  return vulkan_status(d.vk.vkQueueSubmit(d.queue, 1, &info, fence_), "submitting work");
}

// A CPU driver needs the processor itself.
Status Recorder::wait_for_fence(const Device& d) {
  const uint64_t start = now_ns();
  VkResult result = VK_NOT_READY;
  while (result == VK_NOT_READY && d.traits.kind != DeviceKind::kCpu && now_ns() - start < kPollNs)
    result = d.vk.vkGetFenceStatus(d.device, fence_);
  if (result == VK_NOT_READY) result = d.vk.vkWaitForFences(d.device, 1, &fence_, VK_TRUE, UINT64_MAX);
  return vulkan_status(result, "waiting for the device");
}

Status Recorder::refuse_lost() const {
  return lost_ ? fail(WEIR_ERR_DEVICE_LOST, "the device was lost: %s", why_lost_) : Status();
}

Status Recorder::lose() {
  lost_ = true;
  std::snprintf(why_lost_, sizeof(why_lost_), "%.159s", last_error_text());
  return refuse_lost();
}

void Recorder::start_over(const Device& d) {
  recording_ = false;
  hazards_.clear();
  kernels_only_ = has_copies_ = false;
  n_arrivals_ = 0;
  staging_used_ = 0;
  launched_ = false;
  VkResult result = d.vk.vkResetFences(d.device, 1, &fence_);
  if (result == VK_SUCCESS) result = d.vk.vkResetCommandPool(d.device, pool_, 0);
  if (!vulkan_status(result, "starting over").ok()) (void)lose();
}

// Other sessions' work was in it, too: whatever the reason, nobody knows what was computed.
Status Recorder::lose_work(const Device& d) {
  (void)lose();
  // What was submitted may still be running, and the memory that it uses is released next.
  (void)d.vk.vkDeviceWaitIdle(d.device);
  return refuse_lost();
}

Status Recorder::start(const Device& d) {
  WEIR_TRY(refuse_lost());
  if (!recording_) return {};
  recording_ = false;
  Status status = end_commands(d, commands_);
  if (status.ok()) status = submit(d, &commands_, 1);
  if (!status.ok()) return lose_work(d);
  launched_ = true;
  return {};
}

Status Recorder::wait(const Device& d) {
  WEIR_TRY(start(d));
  if (!launched_) return {};
  if (!wait_for_fence(d).ok()) return lose_work(d);
  for (size_t i = 0; i < n_arrivals_; ++i)
    std::memcpy(arrivals_[i].to, mapped_ + arrivals_[i].offset, arrivals_[i].bytes);
  start_over(d);
  return {};
}

// ----------------------------------------------------------------------------------------------------- recorded work

Status Recorder::begin_recording(const Device& d, uint64_t argument_bytes, Recorded& out) {
  WEIR_TRY(wait(d));
  WEIR_TRY(make_buffer(d, std::max<uint64_t>(argument_bytes, 1), d.local_type, out.arguments, nullptr));
  WEIR_TRY(begin_part(d, out));
  recorded_ = &out;
  return {};
}

Status Recorder::begin_part(const Device& d, Recorded& work) {
  if (work.n_parts == Recorded::kMaxParts) return fail(WEIR_ERR_INTERNAL, "Vulkan: recorded work has too many parts");
  VkCommandBuffer& part = work.parts[work.n_parts];
  WEIR_TRY(make_commands(d, recorded_pool_, part));
  ++work.n_parts;
  VkCommandBufferBeginInfo info = {};
  info.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO;
  return vulkan_status(d.vk.vkBeginCommandBuffer(part, &info), "beginning a command buffer");
}

// All of it is there for what follows, in whichever part.
Status Recorder::end_part(const Device& d, VkCommandBuffer part) {
  hazards_.clear();
  kernels_only_ = has_copies_ = false;
  return end_commands(d, part);
}

// There is always a part to end, whatever fails.
Status Recorder::next_part(const Device& d) {
  if (recorded_ == nullptr) return {};
  const VkCommandBuffer before = target();
  WEIR_TRY(begin_part(d, *recorded_));
  return end_part(d, before);
}

Status Recorder::end_recording(const Device& d) {
  Recorded& work = *recorded_;
  recorded_ = nullptr;
  const uint64_t bytes = staging_used_;
  staging_used_ = 0;
  WEIR_TRY(end_part(d, work.parts[work.n_parts - 1]));
  if (bytes == 0) return {};
  WEIR_TRY(begin(d));
  const VkBufferCopy region = {staging_.address - staging_.base, work.arguments.address - work.arguments.base, bytes};
  d.vk.vkCmdCopyBuffer(commands_, staging_.buffer, work.arguments.buffer, 1, &region);
  return wait(d);
}

Status Recorder::launch(const Device& d, const VkCommandBuffer* commands, uint32_t n) {
  WEIR_TRY(wait(d));
  if (const Status status = submit(d, commands, n); !status.ok()) return lose();
  launched_ = true;
  return {};
}

void Recorder::destroy(const Device& d, Recorded& work) {
  if (work.n_parts != 0) d.vk.vkFreeCommandBuffers(d.device, recorded_pool_, work.n_parts, work.parts);
  destroy_buffer(d, work.arguments);
  work.n_parts = 0;
  work.arguments = {};
}

}  // namespace weir::vulkan
