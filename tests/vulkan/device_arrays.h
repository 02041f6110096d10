// Device memory for one call of a kernel: arrays are copied there, and those that it writes back into the test's.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <vector>

#include "tests/cmocka_cpp.h"
#include "vulkan/context.h"

namespace weir::test {

// The process's device: WEIR_TEST_VULKAN_DEVICE.
inline vulkan::Context& open_context() {
  using namespace vulkan;
  Context& c = context();
  if (c.is_open) return c;
  DeviceTraits devices[kMaxDevices];
  uint32_t n = 0, which = 0;
  assert_true(open_instance(kLoader, c.device).ok());
  assert_true(list_devices(c.device, devices, n).ok());
  if (!choose_device(devices, n, std::getenv("WEIR_TEST_VULKAN_DEVICE"), which).ok()) fail_msg("%s", last_error_text());
  if (!c.open(which).ok()) fail_msg("%s", last_error_text());
  return c;
}

class DeviceArrays {
 public:
  DeviceArrays() : c_(open_context()) {}
  DeviceArrays(const DeviceArrays&) = delete;
  DeviceArrays& operator=(const DeviceArrays&) = delete;
  ~DeviceArrays() {
    for (void* block : blocks_) (void)c_.release(block);
  }

  void* room(uint64_t bytes) {
    void* out = nullptr;
    assert_true(c_.memory.allocate(c_.device, bytes, &out).ok());
    blocks_.push_back(out);
    return out;
  }
  template <class T>
  T* in(const T* host, size_t n) {
    T* const out = static_cast<T*>(room(n * sizeof(T)));
    assert_true(c_.copy_in(out, host, n * sizeof(T)).ok());
    return out;
  }
  template <class T>
  T* in(const std::vector<T>& host) {
    return in(host.data(), host.size());
  }
  // finish() brings it back.
  template <class T>
  T* both(std::vector<T>& host) {
    T* const out = in(host);
    back_.push_back([this, &host, out] { assert_true(c_.copy_out(host.data(), out, host.size() * sizeof(T)).ok()); });
    return out;
  }
  void finish() {
    for (const auto& copy : back_) copy();
    if (!c_.recorder.wait(c_.device).ok()) fail_msg("%s", last_error_text());
  }

 private:
  vulkan::Context& c_;
  std::vector<void*> blocks_;
  std::vector<std::function<void()>> back_;
};

}  // namespace weir::test
