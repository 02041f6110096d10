// quant: IQ2_XXS. Mirrors lib/quant/iq2_xxs.h.
#include "quant/iq2_xxs.h"

#include <bit>

#include "tests/quant/quant_test.h"

using namespace weir;

namespace {

void iq2_xxs__decodes_a_hand_made_block(void**) {
  // Scale 3800 = 0.5, at an odd address. Weights 40..47 have entry 255 of the grid: 8 25 8 8 25 43 43 43, and the signs
  // 0000001, an odd number, so the eighth is negative, too: bits 7..13 of the word. Its sub-scale is 2: 5. All others
  // have entry 0, eight times 8.
  uint8_t bytes[67] = {0xEE, 0x00, 0x38};
  bytes[1 + 2 + 8 + 1] = 255;
  bytes[1 + 2 + 12] = 0x80, bytes[1 + 2 + 15] = 0x20;
  float want[256], got[256];
  for (int i = 0; i < 256; ++i) want[i] = 0.5f / 8 * (i / 32 == 1 ? 5 : 1) * 8;
  const float eight[8] = {-8, 25, 8, 8, 25, 43, 43, -43};
  for (int i = 0; i < 8; ++i) want[40 + i] = 0.5f / 8 * 5 * eight[i];
  weight_type_info(WeightType::kIQ2_XXS).decode(bytes + 1, got, 256);
  weir_test::assert_same_bits(got, want, 256, "iq2_xxs");
}

// The signs of all numbers of seven bits, in each of the four places.
void even_signs__are_even(void**) {
  for (uint32_t seven = 0; seven < 128; ++seven) {
    const auto eight = seven | (static_cast<uint32_t>(std::popcount(seven)) & 1) << 7;
    for (uint32_t place = 0; place < 4; ++place) {
      assert_int_equal(even_signs(seven << (7 * place) | 0xF0000000u), eight << (8 * place));
      const uint32_t others = 0x0FFFFFFFu & ~(127u << (7 * place));  // all minus
      assert_int_equal(even_signs(seven << (7 * place) | others) >> (8 * place) & 255u, eight);
    }
  }
}

void iq2_xxs__golden(void**) { weir_test::assert_golden(WeightType::kIQ2_XXS); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(iq2_xxs__decodes_a_hand_made_block),
                              cmocka_unit_test(even_signs__are_even), cmocka_unit_test(iq2_xxs__golden)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
