// quant: NVFP4. Mirrors lib/quant/nvfp4.h.
#include "quant/nvfp4.h"

#include "tests/quant/quant_test.h"

using namespace weir;

namespace {

// The sixteen numbers of four bits; that of the sign alone counts as 0, without a sign.
constexpr float kNumbers[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, 0, -0.5f, -1, -1.5f, -2, -3, -4, -6};

void nvfp4__decodes_a_hand_made_block(void**) {
  // Scales 1, 1.875, 2^-9 (subnormal) and 448, at an odd address.
  uint8_t bytes[37] = {0xEE, 0x38, 0x3F, 0x01, 0x7E};
  constexpr float kScales[4] = {1.0f, 1.875f, 0x1p-9f, 448.0f};
  float want[64], got[64];
  for (int s = 0; s < 4; ++s) {
    for (int i = 0; i < 8; ++i) {
      const int low = (i + 3 * s) % 16, high = (2 * i + 1 + s) % 16;
      bytes[5 + 8 * s + i] = static_cast<uint8_t>(low | high << 4);
      want[16 * s + i] = kScales[s] * kNumbers[low];
      want[16 * s + 8 + i] = kScales[s] * kNumbers[high];
    }
  }
  weight_type_info(WeightType::kNVFP4).decode(bytes + 1, got, 64);
  weir_test::assert_same_bits(got, want, 64, "nvfp4");
}

void nvfp4__scales(void**) {
  BlockNVFP4 block = {{}, {0x07}};  // weight 0 is 6
  float out[64];
  const auto decoded = [&](uint8_t scale) {
    block.scales[0] = scale;
    decode(block, out);
    return out[0] / 6;
  };
  assert_true(decoded(0) == 0 && decoded(7) == 0x7p-9f && decoded(8) == 0x1p-6f && decoded(126) == 448.0f);
  assert_true(decoded(127) == 0);  // the number's NaN: public readers take it for 0
  for (int s = 0; s < 127; ++s) assert_true(decoded(static_cast<uint8_t>(s | 128)) == decoded(static_cast<uint8_t>(s)));
}

void nvfp4__golden(void**) { weir_test::assert_golden(WeightType::kNVFP4); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(nvfp4__decodes_a_hand_made_block), cmocka_unit_test(nvfp4__scales),
                              cmocka_unit_test(nvfp4__golden)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
