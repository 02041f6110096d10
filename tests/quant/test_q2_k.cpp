// quant: Q2_K. Mirrors lib/quant/q2_k.h.
#include "quant/q2_k.h"

#include "tests/quant/quant_test.h"

using namespace weir;

namespace {

void q2_k__decodes_a_hand_made_block(void**) {
  uint8_t bytes[85] = {0xEE};  // at an odd address
  const auto scale = [](int s) { return (7 * s + 3) % 16; };
  const auto minimum = [](int s) { return (5 * s + 1) % 16; };
  const auto quant = [](int i) { return (i + i / 4 + i / 32) % 4; };
  for (int s = 0; s < 16; ++s) bytes[1 + s] = static_cast<uint8_t>(scale(s) | minimum(s) << 4);
  // Weight 128h + 32k + i lies in bits 2k and 2k + 1 of byte 32h + i.
  for (int h = 0; h < 2; ++h) {
    for (int i = 0; i < 32; ++i) {
      const int first = 128 * h + i;
      bytes[17 + 32 * h + i] =
          static_cast<uint8_t>(quant(first) | quant(first + 32) << 2 | quant(first + 64) << 4 | quant(first + 96) << 6);
    }
  }
  const uint8_t scales[4] = {0x00, 0x38, 0x00, 0xB0};  // 3800 = 0.5 and B000 = -0.125
  std::memcpy(bytes + 81, scales, 4);
  float want[256], got[256];
  for (int i = 0; i < 256; ++i) {
    want[i] = 0.5f * static_cast<float>(scale(i / 16) * quant(i)) + 0.125f * static_cast<float>(minimum(i / 16));
  }
  weight_type_info(WeightType::kQ2_K).decode(bytes + 1, got, 256);
  weir_test::assert_same_bits(got, want, 256, "q2_k");
}

void q2_k__golden(void**) { weir_test::assert_golden(WeightType::kQ2_K); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(q2_k__decodes_a_hand_made_block), cmocka_unit_test(q2_k__golden)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
