// For tests whose bounds are about near ties: prompts are multiplied in f32, also where a Vulkan device has matrices in
// f16. Without the headers of Vulkan there is no such device to test.
#pragma once

#include <cstdio>
#include <cstdlib>

#if __has_include(<vulkan/vulkan_core.h>)
#include "tests/vulkan/shim/shim_test.h"
#endif

namespace weir::test {

// To be called before anything opens Vulkan.
inline void hide_matrices() {
#if __has_include(<vulkan/vulkan_core.h>)
  if (test_device() != WEIR_DEVICE_VULKAN || on_llvmpipe() || real_loader().empty()) return;
  Shim* const shim = open_shim();
  if (shim == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    std::exit(1);
  }
  shim->devices[0].lack = Lack::kMatrices;
#endif
}

}  // namespace weir::test
