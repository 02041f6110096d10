// Whether subgroup operations give what they should: some drivers' shuffles are wrong.
#pragma once

#include "core/status.h"
#include "shaders/shared.h"

namespace weir::vulkan {

// `words` [kSelfTestWords, kInvocations] is what shaders/self_test.comp wrote on the device `name`.
// WEIR_ERR_UNSUPPORTED says what is wrong.
Status check_self_test(const uint32_t* words, const char* name);

// Whether `words` [kInvocations], which shaders/self_test_dot.comp wrote, are right.
bool check_self_test_dot(const uint32_t* words);

// One tile of cooperative matrices, whose sums f32 has exactly.
inline constexpr uint32_t kMatrixTestTokens = 32, kMatrixTestRows = 64, kMatrixTestCols = 96;
struct MatrixTest {
  uint16_t x[kMatrixTestTokens * kMatrixTestCols];  // f16
  uint16_t w[kMatrixTestRows * kMatrixTestCols];
  float scales[kMatrixTestTokens];
  float y[kMatrixTestTokens * kMatrixTestRows];
};
void fill_matrix_test(MatrixTest& test);
// Whether y is what it should be.
bool check_matrix_test(const MatrixTest& test);

}  // namespace weir::vulkan
