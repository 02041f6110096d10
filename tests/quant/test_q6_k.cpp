// quant: Q6_K. Mirrors lib/quant/q6_k.h.
#include "quant/q6_k.h"

#include "tests/quant/quant_test.h"

using namespace weir;

namespace {

void q6_k__decodes_a_hand_made_block(void**) {
  uint8_t bytes[211] = {0xEE};  // at an odd address
  uint8_t* const low = bytes + 1;
  uint8_t* const high = bytes + 129;
  const auto quant = [](int w) { return (13 * w + w / 32) % 64; };
  for (int w = 0; w < 256; ++w) {  // the four weights w, w+32, w+64, w+96 of a half share one byte of `high`
    const int half = w / 128, in_half = w % 128, k = in_half / 32, i = in_half % 32;
    uint8_t& low_byte = low[64 * half + in_half % 64];
    low_byte = static_cast<uint8_t>(low_byte | (quant(w) & 15) << (in_half < 64 ? 0 : 4));
    uint8_t& high_byte = high[32 * half + i];
    high_byte = static_cast<uint8_t>(high_byte | (quant(w) >> 4) << (2 * k));
  }
  const auto sub_scale = [](int s) { return s == 0 ? -128 : 10 * s - 75; };
  for (int s = 0; s < 16; ++s) bytes[193 + s] = static_cast<uint8_t>(sub_scale(s));
  bytes[209] = 0x00;
  bytes[210] = 0x2C;  // scale 2C00 = 0.0625
  float want[256], got[256];
  for (int w = 0; w < 256; ++w) {  // the sign of a zero is that of the product
    want[w] = 0.0625f * static_cast<float>(sub_scale(w / 16)) * static_cast<float>(quant(w) - 32);
  }
  weight_type_info(WeightType::kQ6_K).decode(bytes + 1, got, 256);
  weir_test::assert_same_bits(got, want, 256, "q6_k");
}

void q6_k__golden(void**) { weir_test::assert_golden(WeightType::kQ6_K); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(q6_k__decodes_a_hand_made_block), cmocka_unit_test(q6_k__golden)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
