// quant: f16 and bf16 conversions. Mirrors lib/quant/half.h. The expected values are computed in another way: widening
// with ldexp, narrowing by a search among the neighbouring values.
#include <cmath>
#include <limits>

#include "quant/half.h"
#include "tests/quant/quant_test.h"

using namespace weir;

namespace {

uint32_t bits(float f) { return std::bit_cast<uint32_t>(f); }
float from_bits(uint32_t x) { return std::bit_cast<float>(x); }

// Value of finite f16 bits by the definition of the format.
double f16_value(uint16_t h) {
  const int exponent = h >> 10 & 31, mantissa = h & 1023;
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return h & 0x8000 ? -magnitude : magnitude;
}

void half__f16_to_f32_all_values(void**) {
  for (uint32_t i = 0; i <= 0xFFFF; ++i) {
    const auto h = static_cast<uint16_t>(i);
    const float f = f16_to_f32(h);
    if ((h & 0x7C00) != 0x7C00) {
      assert_true(static_cast<double>(f) == f16_value(h) && std::signbit(f) == (h >> 15 != 0));
    } else if ((h & 0x3FF) == 0) {
      assert_true(std::isinf(f) && std::signbit(f) == (h >> 15 != 0));
    } else {
      assert_int_equal(bits(f), (h & 0x8000u) << 16 | 0x7FC00000u | (h & 0x3FFu) << 13);
    }
  }
}

void half__f16_round_trips(void**) {
  for (uint32_t i = 0; i <= 0xFFFF; ++i) {
    const bool nan = (i & 0x7C00) == 0x7C00 && (i & 0x3FF) != 0;
    assert_int_equal(f32_to_f16(f16_to_f32(static_cast<uint16_t>(i))), nan ? i | 0x200 : i);
  }
}

// Between two neighbours a < b: the middle goes to the even one, its f32 neighbours to the nearer one.
void half__f16_rounds_to_nearest_even(void**) {
  for (uint32_t i = 0; i < 0x7C00; ++i) {
    const auto a = static_cast<uint16_t>(i), b = static_cast<uint16_t>(i + 1);
    const double upper = b == 0x7C00 ? 65536.0 : f16_value(b);  // the next value, if f16 had one
    const auto middle = static_cast<float>((f16_value(a) + upper) / 2);
    const uint16_t even = i % 2 == 0 ? a : b;
    for (uint32_t sign : {0u, 0x8000u}) {
      const float s = sign != 0 ? -1.0f : 1.0f;
      assert_int_equal(f32_to_f16(s * middle), sign | even);
      assert_int_equal(f32_to_f16(s * std::nextafter(middle, 0.0f)), sign | a);
      assert_int_equal(f32_to_f16(s * std::nextafter(middle, 1e9f)), sign | b);
    }
  }
}

void half__f16_special_values(void**) {
  assert_int_equal(f32_to_f16(0.0f), 0);
  assert_int_equal(f32_to_f16(-0.0f), 0x8000);
  assert_int_equal(f32_to_f16(std::numeric_limits<float>::denorm_min()), 0);
  assert_int_equal(f32_to_f16(0x1p-25f), 0);  // a tie between 0 and the smallest: even is 0
  assert_int_equal(f32_to_f16(65519.0f), 0x7BFF);
  assert_int_equal(f32_to_f16(65520.0f), 0x7C00);
  assert_int_equal(f32_to_f16(std::numeric_limits<float>::max()), 0x7C00);
  assert_int_equal(f32_to_f16(-std::numeric_limits<float>::infinity()), 0xFC00);
  assert_int_equal(f32_to_f16(from_bits(0x7F800001u)), 0x7E00);  // a signalling NaN whose payload would be lost
  assert_int_equal(f32_to_f16(from_bits(0xFFC02000u)), 0xFE01);
}

void half__bf16_to_f32_is_a_shift(void**) {
  for (uint32_t i = 0; i <= 0xFFFF; ++i) assert_int_equal(bits(bf16_to_f32(static_cast<uint16_t>(i))), i << 16);
}

void half__bf16_rounds_to_nearest_even(void**) {
  for (uint32_t i = 0; i < 0x7F80; ++i) {
    const uint32_t even = i % 2 == 0 ? i : i + 1;
    for (uint32_t sign : {0u, 0x8000u}) {
      const uint32_t low = (sign | i) << 16;
      assert_int_equal(f32_to_bf16(from_bits(low)), sign | i);
      assert_int_equal(f32_to_bf16(from_bits(low | 0x7FFF)), sign | i);
      assert_int_equal(f32_to_bf16(from_bits(low | 0x8000)), sign | even);
      assert_int_equal(f32_to_bf16(from_bits(low | 0x8001)), sign | (i + 1));
      assert_int_equal(f32_to_bf16(from_bits(low | 0xFFFF)), sign | (i + 1));
    }
  }
}

void half__bf16_keeps_nan_and_infinity(void**) {
  assert_int_equal(f32_to_bf16(std::numeric_limits<float>::infinity()), 0x7F80);
  assert_int_equal(f32_to_bf16(std::numeric_limits<float>::max()), 0x7F80);
  assert_int_equal(f32_to_bf16(from_bits(0x7F800001u)), 0x7FC0);  // rounding alone would give infinity
  assert_int_equal(f32_to_bf16(from_bits(0x7FFFFFFFu)), 0x7FFF);  // and here -0
  assert_int_equal(f32_to_bf16(from_bits(0xFF81FFFFu)), 0xFFC1);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(half__f16_to_f32_all_values),       cmocka_unit_test(half__f16_round_trips),
      cmocka_unit_test(half__f16_rounds_to_nearest_even),  cmocka_unit_test(half__f16_special_values),
      cmocka_unit_test(half__bf16_to_f32_is_a_shift),      cmocka_unit_test(half__bf16_rounds_to_nearest_even),
      cmocka_unit_test(half__bf16_keeps_nan_and_infinity),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
