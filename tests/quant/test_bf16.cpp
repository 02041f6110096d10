// quant: BF16. Mirrors lib/quant/bf16.h; the conversion itself is tested in test_half.cpp.
#include "quant/bf16.h"

#include "tests/quant/quant_test.h"

using namespace weir;

namespace {

void bf16__decodes_hand_made_weights(void**) {
  // 3F80 = 1, C0A0 = -(1 + 32/128) * 4, 0001 = 2^-133, 8000 = -0; little-endian, at an odd address.
  const uint8_t bytes[] = {0xEE, 0x80, 0x3F, 0xA0, 0xC0, 0x01, 0x00, 0x00, 0x80};
  const float want[] = {1.0f, -5.0f, 0x1p-133f, -0.0f};
  float got[4];
  weight_type_info(WeightType::kBF16).decode(bytes + 1, got, 4);
  weir_test::assert_same_bits(got, want, 4, "bf16");
}

void bf16__encode_rounds(void**) {
  const float value = 1.0f + 3 * 0x1p-8f;  // halfway between 1 + 1/128 and 1 + 2/128: the even one
  BlockBF16 block;
  encode(&value, block);
  assert_int_equal(block.bits, 0x3F82);
}

void bf16__golden(void**) { weir_test::assert_golden(WeightType::kBF16); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(bf16__decodes_hand_made_weights), cmocka_unit_test(bf16__encode_rounds),
                              cmocka_unit_test(bf16__golden)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
