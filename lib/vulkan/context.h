// What the process has of Vulkan: one device, its memory and its queue. They stay open until the process ends.
#pragma once

#include <mutex>

#include "ops/types.h"
#include "vulkan/pipeline_cache.h"
#include "vulkan/recorder.h"

namespace weir::vulkan {

struct Context {
  std::recursive_mutex mutex;  // held by every call of the module: sessions may run in several threads
  Device device;
  Memory memory;
  Pipelines pipelines;
  PipelineCache cache;
  Recorder recorder;
  char target[224] = "";
  bool is_open = false;  // and has passed the self-test

  // Whether the device `which` can be used, as far as is known without opening it.
  Status check(uint32_t which, const DeviceTraits& traits);
  // Opens the device `which`; another one than before is refused. After a failure nothing is open, so that any device
  // may be tried again.
  Status open(uint32_t which);
  void close();
  // The folder for pipelines between processes, also of a device that is opened later. In parts, since files are read
  // and written without the lock: whether `file` is to be read or written, and what became of it.
  bool begin_use_cache(const char* folder, CacheFile& file);
  void end_use_cache(const CacheFile& file, const Status& read);
  bool begin_keep_cache(CacheFile& file);
  Status prepare();  // what an opened device needs besides
  Status self_test();
  Status self_test_dot(void* out);  // `out` has room for its words
  Status self_test_matrices();

  // What was enqueued may use the memory, and runs first. It is given back even if that fails.
  Status release(void* allocated);
  Status release_staging(void* host);

  // Records a kernel. `type` is that of typed kernels.
  template <class Push>
  Status dispatch(Kernel kernel, WeightType type, const Variant& variant, const Push& push, const Touches& touches,
                  Grid grid) {
    return recorder.dispatch(device, memory, pipelines, kernel, type, variant, push, touches, grid);
  }
  Status copy_in(void* to, const void* host, uint64_t bytes) {
    return recorder.copy_in(device, memory, to, host, bytes);
  }
  Status copy_out(void* host, const void* from, uint64_t bytes) {
    return recorder.copy_out(device, memory, host, from, bytes);
  }
};

Context& context();

// Every driver allows so many workgroups along an axis; kernels take further rows in steps of the grid.
inline constexpr uint32_t kMaxGroups = 65535;

}  // namespace weir::vulkan
