// quant: Q4_K and the packed scales that it shares with Q5_K. Mirrors lib/quant/q4_k.h and k_scales.h.
#include "quant/q4_k.h"

#include "tests/quant/quant_test.h"

using namespace weir;

namespace {

// Scales 1 2 3 63 21 42 16 48 and minimums 10 0 63 5 1 62 32 31, packed by hand. Byte 0: scale 0 = 000001 under the top
// bits of scale 4 = 21 = 01 0101 gives 01 000001. Byte 8: the low bits of minimum 4, 0001, over those of scale 4, 0101.
constexpr uint8_t kPacked[12] = {0x41, 0x82, 0x43, 0xFF, 0x0A, 0xC0, 0xBF, 0x45, 0x15, 0xEA, 0x00, 0xF0};
constexpr int kScale[8] = {1, 2, 3, 63, 21, 42, 16, 48}, kMinimum[8] = {10, 0, 63, 5, 1, 62, 32, 31};

void q4_k__packed_scales(void**) {
  for (size_t i = 0; i < 8; ++i) {
    assert_int_equal(k_scale(kPacked, i).scale, kScale[i]);
    assert_int_equal(k_scale(kPacked, i).minimum, kMinimum[i]);
  }
}

void q4_k__decodes_a_hand_made_block(void**) {
  uint8_t bytes[145] = {0xEE, 0x00, 0x38, 0x00, 0x30};  // scale 3800 = 0.5, min_scale 3000 = 0.125, at an odd address
  std::memcpy(bytes + 5, kPacked, 12);
  const auto quant = [](int sub_block, int i) { return (3 * i + 5 * sub_block) % 16; };
  for (int c = 0; c < 4; ++c) {
    for (int i = 0; i < 32; ++i) {
      bytes[17 + 32 * c + i] = static_cast<uint8_t>(quant(2 * c, i) | quant(2 * c + 1, i) << 4);
    }
  }
  float want[256], got[256];
  for (int s = 0; s < 8; ++s) {
    for (int i = 0; i < 32; ++i) {
      want[32 * s + i] = 0.5f * static_cast<float>(kScale[s] * quant(s, i)) - 0.125f * static_cast<float>(kMinimum[s]);
    }
  }
  weight_type_info(WeightType::kQ4_K).decode(bytes + 1, got, 256);
  weir_test::assert_same_bits(got, want, 256, "q4_k");
}

void q4_k__golden(void**) { weir_test::assert_golden(WeightType::kQ4_K); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(q4_k__packed_scales), cmocka_unit_test(q4_k__decodes_a_hand_made_block),
                              cmocka_unit_test(q4_k__golden)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
