// The Vulkan module with one more entry point: what the process has of Vulkan, so that a test can change how the
// module's sessions are recorded (test_session_bits.cpp).
#include "vulkan/context.h"

extern "C" __attribute__((visibility("default"))) weir::vulkan::Context* weir_vulkan_context() {
  return &weir::vulkan::context();
}
