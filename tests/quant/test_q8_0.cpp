// quant: Q8_0. Mirrors lib/quant/q8_0.h.
#include "quant/q8_0.h"

#include <array>
#include <cmath>

#include "tests/quant/quant_test.h"

using namespace weir;

namespace {

void q8_0__decodes_a_hand_made_block(void**) {
  uint8_t bytes[35] = {0xEE, 0x00, 0x34};  // scale 3400 = 0.25, at an odd address
  for (int i = 0; i < 32; ++i) bytes[3 + i] = static_cast<uint8_t>(i * 9 - 128);  // -128, -119, ... 151 which wraps
  bytes[34] = 127;
  float want[32], got[32];
  for (int i = 0; i < 29; ++i) want[i] = 0.25f * static_cast<float>(i * 9 - 128);
  want[29] = 0.25f * (133 - 256);
  want[30] = 0.25f * (142 - 256);
  want[31] = 31.75f;
  weight_type_info(WeightType::kQ8_0).decode(bytes + 1, got, 32);
  weir_test::assert_same_bits(got, want, 32, "q8_0");
}

void q8_0__encode_hand_made_block(void**) {
  float in[32] = {-127.0f, 63.5f, -0.5f, 0.49f, 126.5f, -126.5f};  // scale 1: halves go away from zero
  BlockQ8_0 block;
  encode(in, block);
  assert_int_equal(block.scale, 0x3C00);
  const int want[] = {-127, 64, -1, 0, 127, -127, 0};
  for (int i = 0; i < 7; ++i) assert_int_equal(block.q[i], want[i]);
}

void q8_0__encode_error_is_bounded(void**) {
  float in[32];
  for (int i = 0; i < 32; ++i) in[i] = 0.37f * std::sin(static_cast<float>(i * i));
  BlockQ8_0 block;
  encode(in, block);
  const std::vector<float> out = weir_test::decoded(block);
  float largest = 0;
  for (float x : in) largest = std::fmax(largest, std::fabs(x));
  // Half a step of rounding, plus the scale's own rounding to 11 bits.
  const float bound = largest / 127 * 0.5f + largest * 0x1p-11f;
  for (int i = 0; i < 32; ++i) assert_true(std::fabs(out[static_cast<size_t>(i)] - in[i]) <= bound);
}

void q8_0__encode_zeros(void**) {
  const float in[32] = {};
  BlockQ8_0 block;
  std::memset(&block, 0xFF, sizeof(block));
  encode(in, block);
  for (uint8_t byte : std::bit_cast<std::array<uint8_t, 34>>(block)) assert_int_equal(byte, 0);
}

void q8_0__golden(void**) { weir_test::assert_golden(WeightType::kQ8_0); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(q8_0__decodes_a_hand_made_block),
                              cmocka_unit_test(q8_0__encode_hand_made_block),
                              cmocka_unit_test(q8_0__encode_error_is_bounded), cmocka_unit_test(q8_0__encode_zeros),
                              cmocka_unit_test(q8_0__golden)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
