// quant: Q3_K. Mirrors lib/quant/q3_k.h.
#include "quant/q3_k.h"

#include "tests/quant/quant_test.h"

using namespace weir;

namespace {

// Sub-scales less 32, packed by hand. The first four, 33 30 35 0, have the low four bits 1 14 3 0 and the two above
// 2 1 2 0. The low bits of sub-scales i and 8 + i share byte i; the upper bits of 0, 4, 8 and 12 share byte 8:
// 10 11 10 11, the last first, gives EE.
constexpr int kSub[16] = {1, -2, 3, -32, 17, -17, 31, -1, 2, -3, 4, -31, 16, -16, 30, 0};
constexpr uint8_t kPacked[12] = {0x21, 0xDE, 0x43, 0x10, 0x01, 0x0F, 0xEF, 0x0F, 0xEE, 0x51, 0xEE, 0x84};

void q3_k__packed_scales(void**) {
  for (size_t i = 0; i < 16; ++i) assert_int_equal(q3_k_sub_scale(kPacked, i) - 32, kSub[i]);
}

void q3_k__decodes_a_hand_made_block(void**) {
  uint8_t bytes[111] = {0xEE};  // at an odd address
  const auto quant = [](int i) { return (3 * i + i / 8 + i / 32) % 8; };
  // Weight 128h + 32k + i: the low bits are bits 2k and 2k + 1 of byte 32 + 32h + i, the third one is bit 4h + k of i.
  for (int i = 0; i < 256; ++i) {
    const int h = i / 128, k = i / 32 % 4;
    uint8_t &low = bytes[33 + 32 * h + i % 32], &high = bytes[1 + i % 32];
    low = static_cast<uint8_t>(low | (quant(i) & 3) << (2 * k));
    high = static_cast<uint8_t>(high | quant(i) >> 2 << (4 * h + k));
  }
  std::memcpy(bytes + 97, kPacked, 12);
  bytes[110] = 0xB4;  // B400 = -0.25
  float want[256], got[256];
  for (int i = 0; i < 256; ++i) want[i] = -0.25f * static_cast<float>(kSub[i / 16]) * static_cast<float>(quant(i) - 4);
  weight_type_info(WeightType::kQ3_K).decode(bytes + 1, got, 256);
  weir_test::assert_same_bits(got, want, 256, "q3_k");
}

void q3_k__golden(void**) { weir_test::assert_golden(WeightType::kQ3_K); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(q3_k__packed_scales), cmocka_unit_test(q3_k__decodes_a_hand_made_block),
                              cmocka_unit_test(q3_k__golden)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
