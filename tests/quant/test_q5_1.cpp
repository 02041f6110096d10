// quant: Q5_1. Mirrors lib/quant/q5_1.h.
#include "quant/q5_1.h"

#include "tests/quant/quant_test.h"

using namespace weir;

namespace {

void q5_1__decodes_a_hand_made_block(void**) {
  // Scale B800 = -0.5 and minimum 4100 = 2.5, at an odd address; bit 4 of weights 1 and 31 is set.
  uint8_t bytes[25] = {0xEE, 0x00, 0xB8, 0x00, 0x41, 0x02, 0x00, 0x00, 0x80};
  for (int i = 0; i < 16; ++i) bytes[9 + i] = static_cast<uint8_t>(i | ((i + 5) % 16) << 4);
  float want[32], got[32];
  for (int i = 0; i < 16; ++i) {
    want[i] = -0.5f * static_cast<float>(i + (i == 1 ? 16 : 0)) + 2.5f;
    want[16 + i] = -0.5f * static_cast<float>((i + 5) % 16 + (i == 15 ? 16 : 0)) + 2.5f;
  }
  weight_type_info(WeightType::kQ5_1).decode(bytes + 1, got, 32);
  weir_test::assert_same_bits(got, want, 32, "q5_1");
}

void q5_1__golden(void**) { weir_test::assert_golden(WeightType::kQ5_1); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(q5_1__decodes_a_hand_made_block), cmocka_unit_test(q5_1__golden)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
