// The list of shaders, and what each takes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/kernels/page_recall.h"
#include "kv/tables.h"
#include "quant/weight_type.h"
#include "shaders/attn.h"
#include "shaders/decode.h"
#include "shaders/moves.h"
#include "shaders/pages.h"
#include "shaders/recall.h"
#include "shaders/recurrent.h"
#include "shaders/shared.h"
#include "shaders/step.h"

namespace weir::vulkan {

enum class Kernel : uint8_t {
#define WEIR_KERNEL(name, stem, Push, n) name,
#define WEIR_TYPED_KERNEL(name, stem, Push, n) name,
#define WEIR_COOPERATIVE_KERNEL(name, stem) name,
#include "vulkan/kernels.inc"
#undef WEIR_KERNEL
#undef WEIR_TYPED_KERNEL
#undef WEIR_COOPERATIVE_KERNEL
};
inline constexpr size_t kKernelCount = 0
#define WEIR_KERNEL(name, stem, Push, n) +1
#define WEIR_TYPED_KERNEL(name, stem, Push, n) +1
#define WEIR_COOPERATIVE_KERNEL(name, stem) +1
#include "vulkan/kernels.inc"
#undef WEIR_KERNEL
#undef WEIR_TYPED_KERNEL
#undef WEIR_COOPERATIVE_KERNEL
    ;

// Addresses at the beginning of push constants.
template <class Push>
inline constexpr size_t kAddresses = 0;
#define WEIR_KERNEL(name, stem, Push, n) \
  template <>                            \
  inline constexpr size_t kAddresses<Push> = n;
#define WEIR_TYPED_KERNEL(name, stem, Push, n) WEIR_KERNEL(name, stem, Push, n)
#define WEIR_COOPERATIVE_KERNEL(name, stem)
#include "vulkan/kernels.inc"
#undef WEIR_KERNEL
#undef WEIR_TYPED_KERNEL
#undef WEIR_COOPERATIVE_KERNEL

struct ShaderCode {
  const uint32_t* words = nullptr;
  size_t bytes = 0;
  const char* name = "";
};

constexpr bool is_cooperative(Kernel kernel) {
  switch (kernel) {
#define WEIR_KERNEL(name, stem, Push, n)
#define WEIR_TYPED_KERNEL(name, stem, Push, n)
#define WEIR_COOPERATIVE_KERNEL(name, stem) \
  case Kernel::name:                        \
    return true;
#include "vulkan/kernels.inc"
#undef WEIR_KERNEL
#undef WEIR_TYPED_KERNEL
#undef WEIR_COOPERATIVE_KERNEL
    default:
      return false;
  }
}

// The SPIR-V of a kernel; `type` matters to typed ones only. No words: the kernel does not know the type, or the build
// had no compiler for it.
ShaderCode shader_code(Kernel kernel, WeightType type);
// A checksum of the SPIR-V of all kernels.
uint64_t shader_checksum();

}  // namespace weir::vulkan
