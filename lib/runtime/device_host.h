// A runtime's devices: the backend modules that it found, and device memory, which comes from the application's hooks
// and is counted.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "models/model.h"
#include "runtime/device_module.h"
#include "weir/experimental.h"

namespace weir {

inline constexpr size_t kMaxPathBytes = 1024;
inline constexpr size_t kMaxDeviceName = 256;  // drivers give no longer names

class DeviceHost {
 public:
  // `hooks` may be empty: then the module allocates.
  void set_hooks(const AllocatorHooks& hooks) { hooks_ = hooks; }
  // The folder of the modules; null: beside the library. Copied.
  Status set_folder(const char* folder);

  // Which Vulkan device: an index, or a part of a name; null: the best one. Copied.
  Status set_vulkan_device(const char* name);
  // The folder for what drivers compiled; null: none. Copied.
  Status set_cache_folder(const char* folder);
  // Lets the module write what it compiled since, and logs why it could not. Cheap when there is nothing new.
  void keep_cache(const DeviceModule& module, const Log& log) const;

  // The backend of `device` (WEIR_DEVICE_*) on the device with the index `which`, opened when first asked for. kWanted:
  // of Vulkan the one that was set, or its best, of others the first. Each failed call says what is missing.
  static constexpr uint32_t kWanted = UINT32_MAX;
  Status find(int32_t device, uint32_t which, const DeviceModule*& out) const;

  // The devices that a backend's driver shows, at most kMaxListed, and whether sessions of this runtime may run on
  // them; opens none. A failure says why there are none.
  Status list(int32_t device, ListedDevice* devices, uint32_t& n) const;
  // The index of the Vulkan device that was set; kWanted: none was.
  Status wanted_vulkan(uint32_t& which) const;

  // How long a step on a device waits for a page that the host brings. A host that is stopped for longer repeats the
  // step. Tests change it.
  uint64_t recall_late_ns() const { return recall_late_ns_; }
  void set_recall_late_ns(uint64_t ns) { recall_late_ns_ = ns; }

  // Device memory; `pool` names it in messages, and `way_out` says how to need less.
  Status allocate(const DeviceModule& module, uint64_t bytes, const char* pool, void** out, const char* way_out = "");
  void release(const DeviceModule& module, void* device, uint64_t bytes);
  // Name and speed of the first such device, for benchmarks.
  Status measure(int32_t device, weir_bench_device& out);
  uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  uint64_t peak_bytes() const { return peak_bytes_.load(std::memory_order_relaxed); }
  uint64_t n_allocs() const { return n_allocs_.load(std::memory_order_relaxed); }
  uint64_t n_frees() const { return n_frees_.load(std::memory_order_relaxed); }

 private:
  AllocatorHooks hooks_;
  char folder_[kMaxPathBytes] = "";
  char vulkan_device_[kMaxDeviceName] = "";
  char cache_folder_[kMaxPathBytes] = "";
  uint64_t recall_late_ns_ = 500'000'000;
  std::atomic<uint64_t> bytes_{0}, peak_bytes_{0}, n_allocs_{0}, n_frees_{0};
};

// A model's weights in device memory, shared by its sessions there: uploaded by the first of them, freed with the
// model.
class DeviceWeights {
 public:
  // `memory` holds the table of weights, and the staging buffer while they are uploaded; no session counts either.
  explicit DeviceWeights(std::pmr::memory_resource* memory) : memory_(memory), weights_(memory) {}
  ~DeviceWeights() { clear(); }
  DeviceWeights(const DeviceWeights&) = delete;
  DeviceWeights& operator=(const DeviceWeights&) = delete;

  // How many rows of a matrix follow one another in the file, and how many others come then. No rows: all follow.
  struct Run {
    uint32_t n_rows = 0, n_between = 0;
  };
  // Allocates the table of the copies when the model is opened, so that a session takes no more host memory than its
  // plan says. Throws std::bad_alloc.
  void reserve(const Model& model);
  // Uploads what is not there yet. Any thread.
  Status ensure(DeviceHost& host, const DeviceModule& module, const Model& model, ThreadPool& pool);
  const ModelWeights& weights() const { return weights_; }
  // Where they are: a model has one device. Null: not yet on any. Any thread.
  const DeviceModule* module() const {
    const std::lock_guard lock(mutex_);
    return ready_ ? module_ : nullptr;
  }
  // Whether the device's kernels can compute with a model's matrices; the message names the one that they cannot.
  static Status check(const DeviceModule& module, const Model& model);
  // Device bytes that ensure() takes for a model.
  static uint64_t bytes_of(const Model& model);

 private:
  Status upload(const Model& model, ThreadPool& pool);
  Status upload_matrix(const Weight& weight, const Run& run, ThreadPool& pool, Weight& out);
  Status upload_vector(const float* values, uint64_t n, const float*& out);
  void clear();

  mutable std::mutex mutex_;
  std::pmr::memory_resource* memory_;
  DeviceHost* host_ = nullptr;
  const DeviceModule* module_ = nullptr;
  void* block_ = nullptr;
  uint64_t bytes_ = 0;
  uint64_t used_ = 0;
  bool ready_ = false;
  ModelWeights weights_;
};

}  // namespace weir
