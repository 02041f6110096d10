// quant: Q5_K. Mirrors lib/quant/q5_k.h; the packed scales are tested in test_q4_k.cpp.
#include "quant/q5_k.h"

#include "tests/quant/quant_test.h"

using namespace weir;

namespace {

void q5_k__decodes_a_hand_made_block(void**) {
  uint8_t bytes[177] = {0xEE, 0x00, 0x38, 0x00, 0xB0};  // scale 3800 = 0.5, min_scale B000 = -0.125, at an odd address
  // Scales 1 2 3 4 5 6 7 8, minimums 8 7 6 5 4 3 2 1: all below 16, so no top bits.
  const uint8_t packed[12] = {1, 2, 3, 4, 8, 7, 6, 5, 5 | 4 << 4, 6 | 3 << 4, 7 | 2 << 4, 8 | 1 << 4};
  std::memcpy(bytes + 5, packed, 12);
  const auto quant = [](int sub_block, int i) { return (7 * i + 11 * sub_block) % 32; };
  for (int s = 0; s < 8; ++s) {
    for (int i = 0; i < 32; ++i) {
      const int q = quant(s, i);
      bytes[17 + i] = static_cast<uint8_t>(bytes[17 + i] | (q >> 4) << s);
      uint8_t& low = bytes[49 + s / 2 * 32 + i];
      low = static_cast<uint8_t>(low | (q & 15) << (s % 2 * 4));
    }
  }
  float want[256], got[256];
  for (int s = 0; s < 8; ++s) {
    for (int i = 0; i < 32; ++i) {
      want[32 * s + i] = 0.5f * static_cast<float>((s + 1) * quant(s, i)) + 0.125f * static_cast<float>(8 - s);
    }
  }
  weight_type_info(WeightType::kQ5_K).decode(bytes + 1, got, 256);
  weir_test::assert_same_bits(got, want, 256, "q5_k");
}

void q5_k__golden(void**) { weir_test::assert_golden(WeightType::kQ5_K); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(q5_k__decodes_a_hand_made_block), cmocka_unit_test(q5_k__golden)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
