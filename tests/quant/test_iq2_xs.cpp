// quant: IQ2_XS. Mirrors lib/quant/iq2_xs.h.
#include "quant/iq2_xs.h"

#include "tests/quant/quant_test.h"

using namespace weir;

namespace {

void iq2_xs__decodes_a_hand_made_block(void**) {
  // Scale 3800 = 0.5, at an odd address. Weights 40..47 have entry 300 of the grid: 8 25 25 8 8 25 8 25, and the signs
  // 1000010, an even number, so the eighth is positive: 300 + 66 * 512 = 852C. All others have entry 0, eight times 8.
  uint8_t bytes[75] = {0xEE, 0x00, 0x38};
  bytes[1 + 2 + 10] = 0x2C, bytes[1 + 2 + 11] = 0x85;
  bytes[1 + 66 + 1] = 0xF2;  // sub-scales of weights 32..47 and 48..63: 2 and 15, so 5 and 31
  float want[256], got[256];
  for (int i = 0; i < 256; ++i) want[i] = 0.5f / 8 * (i / 16 == 2 ? 5 : i / 16 == 3 ? 31 : 1) * 8;
  const float eight[8] = {8, -25, 25, 8, 8, 25, -8, 25};
  for (int i = 0; i < 8; ++i) want[40 + i] = 0.5f / 8 * 5 * eight[i];
  weight_type_info(WeightType::kIQ2_XS).decode(bytes + 1, got, 256);
  weir_test::assert_same_bits(got, want, 256, "iq2_xs");
}

void iq2_xs__golden(void**) { weir_test::assert_golden(WeightType::kIQ2_XS); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(iq2_xs__decodes_a_hand_made_block), cmocka_unit_test(iq2_xs__golden)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
