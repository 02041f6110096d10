// quant: IQ2_S. Mirrors lib/quant/iq2_s.h.
#include "quant/iq2_s.h"

#include "tests/quant/quant_test.h"

using namespace weir;

namespace {

void iq2_s__decodes_a_hand_made_block(void**) {
  // Scale 3800 = 0.5, at an odd address. Weights 40..47 have entry 257 of the grid: 8 43 25 25 25 8 25 8; its bits 8..9
  // are bits 2..3 of the second byte of high. All others have entry 0, eight times 8.
  uint8_t bytes[83] = {0xEE, 0x00, 0x38};
  bytes[1 + 2 + 5] = 1;
  bytes[1 + 34 + 5] = 0x82;  // weights 41 and 47 are negative
  bytes[1 + 66 + 1] = 0x04;
  bytes[1 + 74 + 1] = 0xF2;  // sub-scales of weights 32..47 and 48..63: 2 and 15, so 5 and 31
  float want[256], got[256];
  for (int i = 0; i < 256; ++i) want[i] = 0.5f / 8 * (i / 16 == 2 ? 5 : i / 16 == 3 ? 31 : 1) * 8;
  const float eight[8] = {8, -43, 25, 25, 25, 8, 25, -8};
  for (int i = 0; i < 8; ++i) want[40 + i] = 0.5f / 8 * 5 * eight[i];
  weight_type_info(WeightType::kIQ2_S).decode(bytes + 1, got, 256);
  weir_test::assert_same_bits(got, want, 256, "iq2_s");
}

void iq2_s__golden(void**) { weir_test::assert_golden(WeightType::kIQ2_S); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(iq2_s__decodes_a_hand_made_block), cmocka_unit_test(iq2_s__golden)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
