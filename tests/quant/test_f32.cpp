// quant: F32. Mirrors lib/quant/f32.h.
#include "quant/f32.h"

#include "tests/quant/quant_test.h"

using namespace weir;

namespace {

// 1, -2, 0.15625 (1.25 * 2^-3), -0, the smallest subnormal, infinity; at an odd address.
constexpr uint8_t kBytes[] = {0xEE, 0x00, 0x00, 0x80, 0x3F, 0x00, 0x00, 0x00, 0xC0, 0x00, 0x00, 0x20, 0x3E,
                              0x00, 0x00, 0x00, 0x80, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x80, 0x7F};

void f32__decodes_hand_made_weights(void**) {
  const float want[] = {1.0f, -2.0f, 0.15625f, -0.0f, 0x1p-149f, std::bit_cast<float>(0x7F800000u)};
  float got[6];
  weight_type_info(WeightType::kF32).decode(kBytes + 1, got, 6);
  weir_test::assert_same_bits(got, want, 6, "f32");
}

void f32__encode_is_the_inverse(void**) {
  for (float value : {1.0f, -0.0f, 3.3e-41f, -1e38f}) {
    BlockF32 block;
    encode(&value, block);
    weir_test::assert_same_bits(weir_test::decoded(block).data(), &value, 1, "f32");
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(f32__decodes_hand_made_weights),
                              cmocka_unit_test(f32__encode_is_the_inverse)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
