// quant: MXFP4. Mirrors lib/quant/mxfp4.h.
#include "quant/mxfp4.h"

#include <cmath>

#include "tests/quant/quant_test.h"

using namespace weir;

namespace {

// The sixteen numbers of four bits; that of the sign alone counts as 0, without a sign.
constexpr float kNumbers[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, 0, -0.5f, -1, -1.5f, -2, -3, -4, -6};

void mxfp4__decodes_a_hand_made_block(void**) {
  uint8_t bytes[18] = {0xEE, 124};  // 2 to the power -3, at an odd address
  float want[32], got[32];
  for (int i = 0; i < 16; ++i) {
    bytes[2 + i] = static_cast<uint8_t>(i | ((i + 5) % 16) << 4);
    want[i] = 0.125f * kNumbers[i];
    want[16 + i] = 0.125f * kNumbers[(i + 5) % 16];
  }
  weight_type_info(WeightType::kMXFP4).decode(bytes + 1, got, 32);
  weir_test::assert_same_bits(got, want, 32, "mxfp4");
}

void mxfp4__scales_at_both_ends(void**) {
  BlockMXFP4 block = {0, {0x71}};  // weight 0 is 0.5, weight 16 is 6
  float out[32];
  const auto decoded = [&](uint8_t scale) {
    block.scale = scale;
    decode(block, out);
    return out[0];
  };
  assert_true(decoded(0) == 0x1p-128f && out[16] == 0x1.8p-125f);
  assert_true(decoded(1) == 0x1p-127f && out[16] == 0x1.8p-124f);
  assert_true(decoded(2) == 0x1p-126f && decoded(127) == 0.5f);
  assert_true(decoded(254) == 0x1p126f && std::isinf(out[16]));
  assert_true(std::isnan(decoded(255)) && std::isnan(out[1]));
}

void mxfp4__golden(void**) { weir_test::assert_golden(WeightType::kMXFP4); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(mxfp4__decodes_a_hand_made_block),
                              cmocka_unit_test(mxfp4__scales_at_both_ends), cmocka_unit_test(mxfp4__golden)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
