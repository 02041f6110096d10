// Vulkan's driver for the processor compiles each variant of a kernel (lib/vulkan/pipelines.h, Variant) for 1 to 30
// seconds, which is nearly all that the quick tests on it take. So in these (WEIR_TEST_VARIANTS=few) every kernel,
// every weight type and the values of each constant are tested, but not each value with each of the others, and two
// weight types are only decoded, not multiplied. Those of matrices on the CPU, which run for each instruction set,
// leave out fewer (WEIR_TEST_VARIANTS=some). On a GPU, and in `./dev test --long` (every_variant/<test>), all are
// tested.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "quant/weight_type.h"

namespace weir::test {

inline bool is_asked_for(const char* variants) {
  const char* const asked = std::getenv("WEIR_TEST_VARIANTS");
  return asked != nullptr && std::strcmp(asked, variants) == 0;
}
inline bool few_variants() { return is_asked_for("few"); }
inline bool every_variant() { return !is_asked_for("some") && !few_variants(); }

// Types that decode by grids, which differ in their grids and in where signs and scales lie. The driver takes 2 seconds
// for a kernel with a grid of 256 entries, and some 10 and 30 for IQ3_S and IQ2_S, whose kernels look up eight entries
// of 512 and four of 1,024.
inline bool has_grid(WeightType type) {
  return type == WeightType::kIQ2_XXS || type == WeightType::kIQ2_XS || type == WeightType::kIQ2_S ||
         type == WeightType::kIQ3_XXS || type == WeightType::kIQ3_S;
}
// One stands for all. Of the others products of single rows are tested, but for the two that take longest.
inline bool stands_for_grids(WeightType type) {
  return type == (few_variants() ? WeightType::kIQ3_XXS : WeightType::kIQ3_S);
}
inline bool is_too_long(WeightType type) {
  return few_variants() && (type == WeightType::kIQ2_S || type == WeightType::kIQ3_S);
}

// Whether products of this weight type are tested with so many rows of x. Three types, without blocks, with small and
// with large ones, are tested with all numbers. How a type is decoded does not depend on the number, so that of the
// others single rows, two of a pass, and the smallest tile are enough, and of grids but one single rows.
inline bool is_variant_of(WeightType type, uint32_t n_tok) {
  if (every_variant() || type == WeightType::kF32 || type == WeightType::kQ8_0 || type == WeightType::kQ4_K)
    return true;
  if (has_grid(type) && !stands_for_grids(type)) return n_tok == 1 && !is_too_long(type);
  return n_tok <= 2 || (n_tok > 8 && n_tok <= 16);
}
// The same of tests that leave nothing out but with that driver.
inline bool is_variant_of_driver(WeightType type, uint32_t n_tok) {
  return !few_variants() || is_variant_of(type, n_tok);
}

// Whether a kernel that decodes weights as matmul's do, which are tested with every type, is tested with this one: with
// the three above, and with every other of the list, the even or the odd ones; of grids with one.
inline bool is_type_tested(WeightType type, bool is_odd) {
  if (has_grid(type) && !every_variant()) return stands_for_grids(type);
  return is_variant_of(type, 64) || static_cast<uint32_t>(type) % 2 == (is_odd ? 1u : 0u);
}

// The same for kernels that keep head_dim / 32 vectors of up to eight heads in registers (lib/vulkan/attn_decode.cpp):
// small heads with all numbers of heads, large ones with one each.
inline bool is_variant_of_heads(uint32_t head_dim, uint32_t group) {
  if (every_variant() || head_dim <= 64) return true;
  return head_dim <= 128 ? group % 4 == 0 || group == 3 : group % 2 != 0;
}

}  // namespace weir::test
