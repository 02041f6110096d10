// quant: Q5_0. Mirrors lib/quant/q5_0.h.
#include "quant/q5_0.h"

#include "tests/quant/quant_test.h"

using namespace weir;

namespace {

void q5_0__decodes_a_hand_made_block(void**) {
  // Scale B800 = -0.5, at an odd address; bit 4 of weights 1 and 31 is set.
  uint8_t bytes[23] = {0xEE, 0x00, 0xB8, 0x02, 0x00, 0x00, 0x80};
  for (int i = 0; i < 16; ++i) bytes[7 + i] = static_cast<uint8_t>(i | ((i + 5) % 16) << 4);
  float want[32], got[32];
  for (int i = 0; i < 16; ++i) {
    want[i] = -0.5f * static_cast<float>(i - (i == 1 ? 0 : 16));
    want[16 + i] = -0.5f * static_cast<float>((i + 5) % 16 - (i == 15 ? 0 : 16));
  }
  weight_type_info(WeightType::kQ5_0).decode(bytes + 1, got, 32);
  weir_test::assert_same_bits(got, want, 32, "q5_0");
}

void q5_0__golden(void**) { weir_test::assert_golden(WeightType::kQ5_0); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(q5_0__decodes_a_hand_made_block), cmocka_unit_test(q5_0__golden)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
