// quant: IQ3_S. Mirrors lib/quant/iq3_s.h.
#include "quant/iq3_s.h"

#include "tests/quant/quant_test.h"

using namespace weir;

namespace {

void iq3_s__decodes_a_hand_made_block(void**) {
  // Scale 3400 = 0.25, at an odd address. Weights 32..35 have entry 257 of the grid: 5 7 9 5; its bit 8 is bit 0 of the
  // second byte of high. Weights 36..39 have entry 1: 3 1 1 1. All others have entry 0: 1 1 1 1.
  uint8_t bytes[111] = {0xEE, 0x00, 0x34};
  bytes[1 + 2 + 8] = 1, bytes[1 + 2 + 9] = 1;
  bytes[1 + 66 + 1] = 1;
  bytes[1 + 74 + 4] = 0x92;   // weights 33, 36 and 39 are negative
  bytes[1 + 106] = 0xF3;      // sub-scales 3 and 15: 7 and 31
  bytes[1 + 106 + 3] = 0x40;  // of the last sub-block 4: 9
  float want[256], got[256];
  for (int i = 0; i < 256; ++i) want[i] = 0.25f * (i < 32 ? 7 : i < 64 ? 31 : i < 224 ? 1 : 9);
  const float eight[8] = {5, -7, 9, 5, -3, 1, 1, -1};
  for (int i = 0; i < 8; ++i) want[32 + i] = 0.25f * 31 * eight[i];
  weight_type_info(WeightType::kIQ3_S).decode(bytes + 1, got, 256);
  weir_test::assert_same_bits(got, want, 256, "iq3_s");
}

void iq3_s__golden(void**) { weir_test::assert_golden(WeightType::kIQ3_S); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(iq3_s__decodes_a_hand_made_block), cmocka_unit_test(iq3_s__golden)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
