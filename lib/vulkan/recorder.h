// The queue: ops and copies are recorded one after another into one command buffer, which start() submits, or wait(),
// which also waits for it.
// Copies from and to plain host memory pass through staging memory of the recorder's own. A session's steps are
// recorded once, into command buffers that are submitted again and again. One thread at a time.
//
// Every command declares the ranges of memory that it reads and writes, and only where these meet does a barrier come
// between (hazards.h). Addresses reach shaders in push constants, or in memory if there are more arguments than these
// hold: each of them must lie in a declared range, and each range in an allocation, else the command is refused.
#pragma once

#include "vulkan/hazards.h"
#include "vulkan/memory.h"
#include "vulkan/pipelines.h"

namespace weir::vulkan {

// The ranges of a command while its push constants are filled.
class Touches {
 public:
  uvec2 reads(const void* device, uint64_t bytes) { return add(device, bytes, false); }
  uvec2 writes(void* device, uint64_t bytes) { return add(device, bytes, true); }
  const Range* ranges() const { return ranges_; }
  size_t count() const { return n_; }

 private:
  uvec2 add(const void* device, uint64_t bytes, bool written);
  Range ranges_[kMaxRanges];
  size_t n_ = 0;
};

struct Grid {
  uint32_t x = 1, y = 1;
};

// Work that is submitted as often as wanted, all at once or part by part.
struct Recorded {
  static constexpr uint32_t kMaxParts = 256;
  VkCommandBuffer parts[kMaxParts] = {};
  uint32_t n_parts = 0;
  Allocation arguments;  // of its kernels, what push constants have no room for
};

class Recorder {
 public:
  Status open(const Device& d);
  // Undoes open(), whether it succeeded or not. Nothing may be running or recorded.
  void close(const Device& d);

  // Runs a kernel over `grid` workgroups after what it must wait for.
  template <class Push>
  Status dispatch(const Device& d, const Memory& memory, Pipelines& pipelines, Kernel kernel, WeightType type,
                  const Variant& variant, const Push& push, const Touches& touches, Grid grid) {
    static_assert(kAddresses<Push> > 0);
    return dispatch(d, memory, pipelines, {kernel, type, variant, &push, sizeof(Push), kAddresses<Push>}, touches,
                    grid);
  }
  Status copy_in(const Device& d, const Memory& memory, void* to, const void* host, uint64_t bytes);
  // The host has the bytes after wait(), or before.
  Status copy_out(const Device& d, const Memory& memory, void* host, const void* from, uint64_t bytes);
  Status copy(const Device& d, const Memory& memory, void* to, const void* from, uint64_t bytes);
  Status fill(const Device& d, const Memory& memory, void* to, uint8_t value, uint64_t bytes);
  // The device begins with what was recorded. What is enqueued next waits until it has done that.
  Status start(const Device& d);
  Status wait(const Device& d);

  // Between these nothing is recorded: kernels note the pipelines that they will need, and copies between device memory
  // and staging memory, and fills, do nothing. Others do not occur in what is recorded.
  void begin_noting() { noting_ = true; }
  void end_noting() { noting_ = false; }
  // Between these, kernels and whatever stays on the device go to `out`, with at most `argument_bytes` beyond push
  // constants. It is empty before, and must be destroyed, whatever these return.
  Status begin_recording(const Device& d, uint64_t argument_bytes, Recorded& out);
  // In between: what follows is another part. Elsewhere nothing.
  Status next_part(const Device& d);
  Status end_recording(const Device& d);
  // Not in between: submits it, or one part of it, after waiting for what was enqueued before.
  Status launch(const Device& d, const Recorded& work) { return launch(d, work.parts, work.n_parts); }
  Status launch_part(const Device& d, const Recorded& work, uint32_t part) { return launch(d, work.parts + part, 1); }
  // Nothing may be running.
  void destroy(const Device& d, Recorded& work);

  // WEIR_ERR_DEVICE_LOST and why, after the device was lost.
  Status refuse_lost() const;
  uint64_t n_barriers() const { return n_barriers_; }
  // A barrier before every command, for tests: results must be the same.
  void set_always_barrier(bool always) { always_barrier_ = always; }

 private:
  struct Run {
    Kernel kernel;
    WeightType type;
    Variant variant;
    const void* push;
    size_t push_bytes;
    size_t n_addresses;
  };
  // Bytes in staging memory that go to the host.
  struct Arrival {
    void* to;
    uint64_t offset, bytes;
  };
  static constexpr size_t kMaxArrivals = 256;
  // Larger copies go in pieces: the size of those in which weights are uploaded.
  static constexpr uint64_t kStagingBytes = 16u << 20;

  VkCommandBuffer target() const { return recorded_ != nullptr ? recorded_->parts[recorded_->n_parts - 1] : commands_; }
  Status begin_part(const Device& d, Recorded& work);
  Status end_part(const Device& d, VkCommandBuffer part);
  Status launch(const Device& d, const VkCommandBuffer* commands, uint32_t n);
  Status make_commands(const Device& d, VkCommandPool pool, VkCommandBuffer& out);
  Status place_arguments(const Device& d, const Run& run, uvec2& address);
  Status end_commands(const Device& d, VkCommandBuffer commands);
  Status dispatch(const Device& d, const Memory& memory, Pipelines& pipelines, const Run& run, const Touches& touches,
                  Grid grid);
  Status check(const Memory& memory, const Run& run, const Touches& touches) const;
  Status begin(const Device& d);
  void touch(const Device& d, const Range* ranges, size_t n, bool is_copy);
  // Room for some of `bytes` in the staging memory, `n` of them, at `offset`.
  Status take_staging(const Device& d, uint64_t bytes, uint64_t& n, uint64_t& offset);
  Status submit(const Device& d, const VkCommandBuffer* commands, uint32_t n);
  Status wait_for_fence(const Device& d);
  // Nothing works after the latest failure, whose message is kept.
  Status lose();
  Status lose_work(const Device& d);
  void start_over(const Device& d);

  VkCommandPool pool_ = VK_NULL_HANDLE, recorded_pool_ = VK_NULL_HANDLE;
  VkCommandBuffer commands_ = VK_NULL_HANDLE;
  Recorded* recorded_ = nullptr;  // where commands go; null: to commands_
  VkFence fence_ = VK_NULL_HANDLE;
  Allocation staging_;
  std::byte* mapped_ = nullptr;
  uint64_t staging_used_ = 0;
  Hazards hazards_;
  Arrival arrivals_[kMaxArrivals];
  size_t n_arrivals_ = 0;
  uint64_t n_barriers_ = 0;
  bool recording_ = false;     // commands_ has commands
  bool kernels_only_ = false;  // the last barrier was one between kernels
  bool has_copies_ = false;    // since the last barrier
  bool launched_ = false;      // something was submitted, and not waited for
  bool lost_ = false, always_barrier_ = false, noting_ = false;
  char why_lost_[160] = "";
};

}  // namespace weir::vulkan
