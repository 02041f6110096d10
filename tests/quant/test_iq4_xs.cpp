// quant: IQ4_XS. Mirrors lib/quant/iq4_xs.h.
#include "quant/iq4_xs.h"

#include "tests/quant/quant_test.h"

using namespace weir;

namespace {

void iq4_xs__decodes_a_hand_made_block(void**) {
  // Scale 3400 = 0.25, at an odd address. Sub-scales less 32: 1 -32 31 -1 17 -17 0 5, so 33 0 63 31 49 15 32 37; their
  // low four bits are 1 0 15 15 1 15 0 5, the two above 2 0 3 1 3 0 2 2, in a word 10 10 00 11 01 11 00 10 = A372.
  constexpr int kSub[8] = {1, -32, 31, -1, 17, -17, 0, 5};
  uint8_t bytes[137] = {0xEE, 0x00, 0x34, 0x72, 0xA3, 0x01, 0xFF, 0xF1, 0x50};
  const auto index = [](int sub_block, int i) { return (3 * i + 5 * sub_block + i / 16) % 16; };
  float want[256], got[256];
  for (int s = 0; s < 8; ++s) {
    for (int i = 0; i < 16; ++i) bytes[9 + 16 * s + i] = static_cast<uint8_t>(index(s, i) | index(s, 16 + i) << 4);
    for (int i = 0; i < 32; ++i) want[32 * s + i] = 0.25f * static_cast<float>(kSub[s] * kIq4Values[index(s, i)]);
  }
  weight_type_info(WeightType::kIQ4_XS).decode(bytes + 1, got, 256);
  for (int i = 0; i < 32; ++i) want[32 * 6 + i] = kIq4Values[index(6, i)] < 0 ? -0.0f : 0.0f;  // sub-scale 0
  weir_test::assert_same_bits(got, want, 256, "iq4_xs");
}

void iq4_xs__golden(void**) { weir_test::assert_golden(WeightType::kIQ4_XS); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(iq4_xs__decodes_a_hand_made_block), cmocka_unit_test(iq4_xs__golden)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
