// What the kernels' launch shapes depend on, read once from the device.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weir::cuda {

struct Device {
  uint32_t n_processors = 0;  // multiprocessors
  size_t shared_bytes = 0;    // most shared memory of a block
  int32_t arch = 0;           // 90 for compute capability 9.0
};

// Of the device that open() found.
const Device& device();

// Makes that device the calling thread's for as long as it lives: the application may have another one current.
class OnDevice {
 public:
  OnDevice();
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int was_ = 0;
};

}  // namespace weir::cuda
