// What the kernels' launch shapes depend on, read once from the device.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weir::cuda {

struct Device {
  uint32_t n_processors = 0;   // multiprocessors
  size_t shared_bytes = 0;     // most shared memory of a block
  int32_t arch = 0;            // 90 for compute capability 9.0
};

// Of the device that open() found.
const Device& device();

}  // namespace weir::cuda
