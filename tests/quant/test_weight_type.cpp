// quant: the table of weight types, encoding by type, and random blocks. Mirrors weight_type.cpp, encode.cpp and
// random_blocks.cpp of lib/quant.
#include "quant/weight_type.h"

#include <cmath>
#include <set>

#include "quant/encode.h"
#include "quant/random_blocks.h"
#include "tests/quant/quant_test.h"

using namespace weir;

namespace {

template <class Check>
void for_each_type(Check check) {
  for (size_t i = 0; i < kWeightTypeCount; ++i) check(static_cast<WeightType>(i));
}

void weight_type__names_and_numbers_are_unique(void**) {
  std::set<std::string> names;
  std::set<uint32_t> numbers;
  for_each_type([&](WeightType type) {
    names.insert(weight_type_info(type).name);
    numbers.insert(weight_type_info(type).gguf_id);
  });
  assert_int_equal(names.size(), kWeightTypeCount);
  assert_int_equal(numbers.size(), kWeightTypeCount);
}

void weight_type__is_found_by_number(void**) {
  for_each_type([](WeightType type) {
    WeightType found = type == WeightType::kF32 ? WeightType::kF16 : WeightType::kF32;
    assert_true(weight_type_from_gguf(weight_type_info(type).gguf_id, found) && found == type);
  });
  WeightType untouched = WeightType::kQ4_K;
  for (uint32_t id : {4u, 9u, 31u, 36u, 99u, 0xFFFFFFFFu}) assert_false(weight_type_from_gguf(id, untouched));
  assert_int_equal(untouched, WeightType::kQ4_K);
}

void weight_type__row_bytes(void**) {
  assert_int_equal(weight_row_bytes(WeightType::kF32, 5), 20);
  assert_int_equal(weight_row_bytes(WeightType::kQ8_0, 4096), 4352);
  assert_int_equal(weight_row_bytes(WeightType::kQ6_K, 512), 420);
}

void weight_type__decode_stays_in_its_row(void**) {
  for_each_type([](WeightType type) {
    const WeightTypeInfo& info = weight_type_info(type);
    const std::vector<uint8_t> blocks(3 * info.block_bytes, 0);
    std::vector<float> out(3 * info.block_weights + 1, 77.0f);
    info.decode(blocks.data(), out.data(), 2 * info.block_weights);
    for (size_t i = 0; i < out.size(); ++i) assert_true((out[i] == 77.0f) == (i >= 2 * info.block_weights));
    info.decode(blocks.data(), out.data(), 0);
  });
}

void encode__round_trips_within_the_type(void**) {
  std::vector<float> in(256), out(256);
  for (size_t i = 0; i < in.size(); ++i) in[i] = std::cos(static_cast<float>(i) * 0.7f);
  for_each_type([&](WeightType type) {
    const WeightTypeInfo& info = weight_type_info(type);
    std::vector<uint8_t> blocks(weight_row_bytes(type, in.size()), 0xAB);
    const std::vector<uint8_t> untouched = blocks;
    assert_int_equal(encode_weights(type, in.data(), blocks.data(), in.size()), can_encode(type));
    if (!can_encode(type)) {
      assert_true(blocks == untouched);
      return;
    }
    info.decode(blocks.data(), out.data(), out.size());
    double error = 0, power = 0;
    for (size_t i = 0; i < in.size(); ++i) {
      error += std::pow(static_cast<double>(in[i] - out[i]), 2);
      power += std::pow(static_cast<double>(in[i]), 2);
    }
    // Uniform rounding to steps of 1/8 of the largest weight has an error of 1/768 of its square, and more for the
    // weight at the clamped end; the power of a cosine is half of that square. 8 bits and more stay far below.
    const double bound = type == WeightType::kQ4_0 ? 6e-3 : 2e-5;
    if (error / power > bound) fail_msg("%s: error %g", info.name, error / power);
  });
}

void encode__exists_for_the_types_that_need_it(void**) {
  for (WeightType type :
       {WeightType::kF32, WeightType::kF16, WeightType::kBF16, WeightType::kQ8_0, WeightType::kQ4_0}) {
    assert_true(can_encode(type));
  }
}

// Mean 0 and the requested deviation, in every type, at the scale of a row of 4096 weights.
void random_blocks__have_the_wanted_spread(void**) {
  constexpr size_t kN = 1 << 17;
  std::vector<float> out(kN);
  for_each_type([&](WeightType type) {
    for (float scale : {1.0f, 1.0f / 64}) {
      std::vector<uint8_t> blocks(weight_row_bytes(type, kN));
      fill_random_blocks(type, blocks.data(), kN, 1, scale);
      weight_type_info(type).decode(blocks.data(), out.data(), kN);
      double sum = 0, squares = 0;
      for (float x : out) {
        assert_true(std::isfinite(x));
        sum += static_cast<double>(x);
        squares += static_cast<double>(x) * static_cast<double>(x);
      }
      const double mean = sum / kN / static_cast<double>(scale),
                   deviation = std::sqrt(squares / kN) / static_cast<double>(scale);
      if (std::fabs(mean) > 0.05 || std::fabs(deviation - 1) > 0.05) {
        fail_msg("%s: mean %g and deviation %g of scale %g", weight_type_info(type).name, mean, deviation,
                 static_cast<double>(scale));
      }
    }
  });
}

void random_blocks__depend_on_the_seed_only(void**) {
  for_each_type([](WeightType type) {
    const size_t bytes = weight_row_bytes(type, 1024);
    std::vector<uint8_t> a(bytes + 1, 0xCD), b(bytes), c(bytes);
    fill_random_blocks(type, a.data(), 1024, 5, 0.5f);
    fill_random_blocks(type, b.data(), 1024, 5, 0.5f);
    fill_random_blocks(type, c.data(), 1024, 6, 0.5f);
    assert_int_equal(a.back(), 0xCD);  // nothing is written beyond the row
    a.pop_back();
    assert_true(a == b && b != c);
  });
}

// Each type's own test checks its layout; every type of the list must have golden blocks of another implementation. F32
// needs none.
void weight_type__every_type_has_golden_blocks(void**) {
  for_each_type([](WeightType type) {
    if (type != WeightType::kF32) weir_test::assert_golden(type);
  });
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(weight_type__names_and_numbers_are_unique),
      cmocka_unit_test(weight_type__is_found_by_number),
      cmocka_unit_test(weight_type__row_bytes),
      cmocka_unit_test(weight_type__every_type_has_golden_blocks),
      cmocka_unit_test(weight_type__decode_stays_in_its_row),
      cmocka_unit_test(encode__round_trips_within_the_type),
      cmocka_unit_test(encode__exists_for_the_types_that_need_it),
      cmocka_unit_test(random_blocks__have_the_wanted_spread),
      cmocka_unit_test(random_blocks__depend_on_the_seed_only),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
