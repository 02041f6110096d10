// quant: IQ3_XXS. Mirrors lib/quant/iq3_xxs.h.
#include "quant/iq3_xxs.h"

#include "tests/quant/quant_test.h"

using namespace weir;

namespace {

void iq3_xxs__decodes_a_hand_made_block(void**) {
  // Scale 3800 = 0.5, at an odd address. Weights 32..39 have entries 255 and 128 of the grid: 4 28 52 62, 4 62 28 20.
  // All others have entry 0: 4 4 4 4. The second sub-block's word: the signs of its first eight weights are 0010011, an
  // odd number, so the eighth is negative, too; the sub-scale is 15: 31.
  uint8_t bytes[99] = {0xEE, 0x00, 0x38};
  bytes[1 + 2 + 8] = 255, bytes[1 + 2 + 9] = 128;
  bytes[1 + 66 + 4] = 0x13, bytes[1 + 66 + 7] = 0xF0;
  float want[256], got[256];
  for (int i = 0; i < 256; ++i) want[i] = 0.5f / 4 * (i / 32 == 1 ? 31 : 1) * 4;
  const float eight[8] = {-4, -28, 52, 62, -4, 62, 28, -20};
  for (int i = 0; i < 8; ++i) want[32 + i] = 0.5f / 4 * 31 * eight[i];
  weight_type_info(WeightType::kIQ3_XXS).decode(bytes + 1, got, 256);
  weir_test::assert_same_bits(got, want, 256, "iq3_xxs");
}

void iq3_xxs__golden(void**) { weir_test::assert_golden(WeightType::kIQ3_XXS); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(iq3_xxs__decodes_a_hand_made_block), cmocka_unit_test(iq3_xxs__golden)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
