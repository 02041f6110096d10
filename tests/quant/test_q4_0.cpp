// quant: Q4_0. Mirrors lib/quant/q4_0.h.
#include "quant/q4_0.h"

#include <cmath>

#include "tests/quant/quant_test.h"

using namespace weir;

namespace {

void q4_0__decodes_a_hand_made_block(void**) {
  uint8_t bytes[19] = {0xEE, 0x00, 0xB8};  // scale B800 = -0.5, at an odd address
  for (int i = 0; i < 16; ++i) bytes[3 + i] = static_cast<uint8_t>(i | ((i + 5) % 16) << 4);
  float want[32], got[32];
  for (int i = 0; i < 16; ++i) {
    want[i] = -0.5f * static_cast<float>(i - 8);
    want[16 + i] = -0.5f * static_cast<float>((i + 5) % 16 - 8);
  }
  weight_type_info(WeightType::kQ4_0).decode(bytes + 1, got, 32);
  weir_test::assert_same_bits(got, want, 32, "q4_0");
}

void q4_0__encode_hand_made_block(void**) {
  float in[32] = {4.0f, -3.5f,
                  -4.0f};  // 4 becomes -8, so the scale is -0.5; -3.5 becomes 7; -4 would be 8, which is clamped
  in[16] = 0.75f;          // -1.5, a tie: rounded up
  BlockQ4_0 block;
  encode(in, block);
  assert_int_equal(block.scale, 0xB800);
  assert_int_equal(block.q[0], 0 | 7 << 4);
  assert_int_equal(block.q[1], 15 | 8 << 4);
  assert_int_equal(block.q[2], 15 | 8 << 4);
  assert_int_equal(block.q[15], 8 | 8 << 4);
}

void q4_0__encode_error_is_bounded(void**) {
  float in[32];
  for (int i = 0; i < 32; ++i) in[i] = 0.37f * std::sin(static_cast<float>(i * i));
  BlockQ4_0 block;
  encode(in, block);
  const std::vector<float> out = weir_test::decoded(block);
  float largest = 0;
  for (float x : in) largest = std::fmax(largest, std::fabs(x));
  // Half a step, or a whole step at the end of the range that 7 steps do not reach, plus the scale's rounding to 11
  // bits.
  for (size_t i = 0; i < 32; ++i) assert_true(std::fabs(out[i] - in[i]) <= largest / 8 + largest * 0x1p-11f);
}

void q4_0__encode_zeros(void**) {
  const float in[32] = {};
  BlockQ4_0 block;
  encode(in, block);
  for (float x : weir_test::decoded(block)) assert_true(x == 0);
}

void q4_0__golden(void**) { weir_test::assert_golden(WeightType::kQ4_0); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(q4_0__decodes_a_hand_made_block),
                              cmocka_unit_test(q4_0__encode_hand_made_block),
                              cmocka_unit_test(q4_0__encode_error_is_bounded), cmocka_unit_test(q4_0__encode_zeros),
                              cmocka_unit_test(q4_0__golden)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
