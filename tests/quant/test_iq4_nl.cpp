// quant: IQ4_NL. Mirrors lib/quant/iq4_nl.h and iq4_values.h.
#include "quant/iq4_nl.h"

#include "tests/quant/quant_test.h"

using namespace weir;

namespace {

void iq4_nl__decodes_a_hand_made_block(void**) {
  // Scale B800 = -0.5, at an odd address. Weight i is entry i of the table, weight 16 + i entry (i + 5) % 16.
  constexpr float kHalves[16] = {63.5f, 52,    41.5f,  32.5f, 24.5f,  17.5f,  11,     5,
                                 -0.5f, -6.5f, -12.5f, -19,   -26.5f, -34.5f, -44.5f, -56.5f};
  uint8_t bytes[19] = {0xEE, 0x00, 0xB8};
  float want[32], got[32];
  for (int i = 0; i < 16; ++i) {
    bytes[3 + i] = static_cast<uint8_t>(i | ((i + 5) % 16) << 4);
    want[i] = kHalves[i];
    want[16 + i] = kHalves[(i + 5) % 16];
  }
  weight_type_info(WeightType::kIQ4_NL).decode(bytes + 1, got, 32);
  weir_test::assert_same_bits(got, want, 32, "iq4_nl");
}

void iq4_nl__golden(void**) { weir_test::assert_golden(WeightType::kIQ4_NL); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(iq4_nl__decodes_a_hand_made_block), cmocka_unit_test(iq4_nl__golden)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
