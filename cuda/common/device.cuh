// The device properties that launch shapes depend on, read once.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weir::cuda {

struct Device {
  uint32_t n_processors = 0;  // SMs
  size_t shared_bytes = 0;    // maximum of one block
  int32_t arch = 0;           // 90 for compute capability 9.0
};

// The properties of the device that open() found.
const Device& device();

// Makes that device current on the calling thread while this object lives. The application may use another device.
class OnDevice {
 public:
  OnDevice() : was_(enter()) {}
  ~OnDevice() { leave(was_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  // The two parts: the device that was current before, and back to it.
  static int enter();
  static void leave(int was);

 private:
  int was_;
};

}  // namespace weir::cuda
