// quant: F16. Mirrors lib/quant/f16.h; the conversion itself is tested in test_half.cpp.
#include "quant/f16.h"

#include "tests/quant/quant_test.h"

using namespace weir;

namespace {

void f16__decodes_hand_made_weights(void**) {
  // 3C00 = 1, C500 = -(1 + 256/1024) * 4, 7BFF the largest, 8001 the smallest magnitude below 0, 8000 = -0; at an odd
  // address.
  const uint8_t bytes[] = {0xEE, 0x00, 0x3C, 0x00, 0xC5, 0xFF, 0x7B, 0x01, 0x80, 0x00, 0x80};
  const float want[] = {1.0f, -5.0f, 65504.0f, -0x1p-24f, -0.0f};
  float got[5];
  weight_type_info(WeightType::kF16).decode(bytes + 1, got, 5);
  weir_test::assert_same_bits(got, want, 5, "f16");
}

void f16__encode_rounds(void**) {
  const float value = 1.0f + 3 * 0x1p-11f;  // halfway between 1 + 1/1024 and 1 + 2/1024: the even one
  BlockF16 block;
  encode(&value, block);
  assert_int_equal(block.bits, 0x3C02);
}

void f16__golden(void**) { weir_test::assert_golden(WeightType::kF16); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(f16__decodes_hand_made_weights), cmocka_unit_test(f16__encode_rounds),
                              cmocka_unit_test(f16__golden)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
