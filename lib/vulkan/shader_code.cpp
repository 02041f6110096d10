// The SPIR-V that cmake/WeirShaders.cmake compiled.
#include "kv/checksum.h"
#include "vulkan/kernels.h"

namespace weir::vulkan {
namespace {

#include "shader_code.inc"

template <size_t kWords>
constexpr ShaderCode code(const uint32_t (&words)[kWords], const char* name) {
  return {words, sizeof(words), name};
}

// Code for the weight types, in order. Lists cannot be nested, so each typed kernel names its own.
constexpr ShaderCode kEmbedCode[] = {
#define WEIR_QUANT(Name, text, gguf_id, block_weights, block_bytes) code(kCode_embed_##Name, "embed of " text),
#include "quant/quants.inc"
#undef WEIR_QUANT
};
constexpr ShaderCode kGemvCode[] = {
#define WEIR_QUANT(Name, text, gguf_id, block_weights, block_bytes) code(kCode_gemv_##Name, "gemv of " text),
#include "quant/quants.inc"
#undef WEIR_QUANT
};
constexpr ShaderCode kGemmCode[] = {
#define WEIR_QUANT(Name, text, gguf_id, block_weights, block_bytes) code(kCode_gemm_##Name, "gemm of " text),
#include "quant/quants.inc"
#undef WEIR_QUANT
};
constexpr ShaderCode kGemmDecodeCode[] = {
#define WEIR_QUANT(Name, text, gguf_id, block_weights, block_bytes) \
  code(kCode_gemm_decode_##Name, "gemm_decode of " text),
#include "quant/quants.inc"
#undef WEIR_QUANT
};
constexpr ShaderCode kGluCode[] = {
#define WEIR_QUANT(Name, text, gguf_id, block_weights, block_bytes) code(kCode_glu_##Name, "glu of " text),
#include "quant/quants.inc"
#undef WEIR_QUANT
};
constexpr ShaderCode kExpertGluCode[] = {
#define WEIR_QUANT(Name, text, gguf_id, block_weights, block_bytes) \
  code(kCode_expert_glu_##Name, "expert_glu of " text),
#include "quant/quants.inc"
#undef WEIR_QUANT
};
constexpr ShaderCode kExpertDownCode[] = {
#define WEIR_QUANT(Name, text, gguf_id, block_weights, block_bytes) \
  code(kCode_expert_down_##Name, "expert_down of " text),
#include "quant/quants.inc"
#undef WEIR_QUANT
};

// By weight type; those without an integer form have no code.
struct IntCode {
  ShaderCode of[kWeightTypeCount];
  constexpr const ShaderCode& operator[](size_t type) const { return of[type]; }
};
constexpr IntCode step_gemv_code() {
  IntCode c;
#define WEIR_INT_QUANT(Name, text) \
  c.of[static_cast<size_t>(WeightType::k##Name)] = code(kCode_step_gemv_##Name, "step_gemv of " text);
#include "vulkan/int_quants.inc"
#undef WEIR_INT_QUANT
  return c;
}
constexpr IntCode step_glu_code() {
  IntCode c;
#define WEIR_INT_QUANT(Name, text) \
  c.of[static_cast<size_t>(WeightType::k##Name)] = code(kCode_step_glu_##Name, "step_glu of " text);
#include "vulkan/int_quants.inc"
#undef WEIR_INT_QUANT
  return c;
}
constexpr IntCode step_gemv_many_code() {
  IntCode c;
#define WEIR_INT_QUANT(Name, text) \
  c.of[static_cast<size_t>(WeightType::k##Name)] = code(kCode_step_gemv_many_##Name, "step_gemv_many of " text);
#include "vulkan/int_quants.inc"
#undef WEIR_INT_QUANT
  return c;
}
constexpr IntCode step_glu_many_code() {
  IntCode c;
#define WEIR_INT_QUANT(Name, text) \
  c.of[static_cast<size_t>(WeightType::k##Name)] = code(kCode_step_glu_many_##Name, "step_glu_many of " text);
#include "vulkan/int_quants.inc"
#undef WEIR_INT_QUANT
  return c;
}
constexpr IntCode kStepGemvCode = step_gemv_code(), kStepGluCode = step_glu_code(),
                  kStepGemvManyCode = step_gemv_many_code(), kStepGluManyCode = step_glu_many_code();

}  // namespace

ShaderCode shader_code(Kernel kernel, WeightType type) {
  switch (kernel) {
#define WEIR_KERNEL(name, stem, Push, n) \
  case Kernel::name:                     \
    return code(kCode_##stem, #stem);
#define WEIR_TYPED_KERNEL(name, stem, Push, n) \
  case Kernel::name:                           \
    return name##Code[static_cast<size_t>(type)];
#ifdef WEIR_HAS_COOPERATIVE_SHADERS
#define WEIR_COOPERATIVE_KERNEL(name, stem) \
  case Kernel::name:                        \
    return code(kCode_##stem, #stem);
#else
#define WEIR_COOPERATIVE_KERNEL(name, stem) \
  case Kernel::name:                        \
    return {nullptr, 0, #stem};
#endif
#include "vulkan/kernels.inc"
#undef WEIR_KERNEL
#undef WEIR_TYPED_KERNEL
#undef WEIR_COOPERATIVE_KERNEL
  }
  return {};
}

uint64_t shader_checksum() {
  Checksum sum;
  for (size_t kernel = 0; kernel < kKernelCount; ++kernel) {
    const uint32_t* last = nullptr;  // of a kernel without types
    for (size_t type = 0; type < kWeightTypeCount; ++type) {
      const ShaderCode code = shader_code(static_cast<Kernel>(kernel), static_cast<WeightType>(type));
      if (code.words == last) continue;
      last = code.words;
      sum.add(code.words, code.bytes);
    }
  }
  return sum.value();
}

}  // namespace weir::vulkan
