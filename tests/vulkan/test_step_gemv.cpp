// vulkan: the GEMVs of decode steps in integers, against products of the decoded weights in double; on the CPU driver,
// WEIR_TEST_VULKAN_DEVICE.
#include "vulkan/step_gemv.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "device/kernels/gemv.h"
#include "ops/gate_ref.h"
#include "quant/planes.h"
#include "tests/ops/matmul_case.h"
#include "tests/variants.h"
#include "tests/vulkan/device_arrays.h"
#include "vulkan/kernels.h"
#include "vulkan/self_test.h"

namespace weir::vulkan {
namespace {

using device::GemvArgs;
using device::GemvColumn;
using test::DeviceArrays;
using test::Matrix;
using test::Random;

constexpr float kEps = 0.1f;  // so large that its lack is seen

void check(Status status) {
  if (!status.ok()) fail_msg("%s", last_error_text());
}

struct Case {
  std::vector<WeightType> types;  // of the parts
  std::vector<uint32_t> n_rows;
  uint32_t n_cols;
  bool norm = false, bias = false, accumulate = false;
  bool glu = false;
  Gate activation = Gate::kSilu;
  uint32_t n_columns = 1;
};

// What a case computes with.
struct Data {
  explicit Data(const Case& c) : the_case(c) {
    Random random(c.n_cols + c.n_rows[0]);
    for (uint32_t t = 0; t < c.n_columns; ++t) x.push_back(random.normals(c.n_cols));
    if (c.norm) norm = random.normals(c.n_cols);
    for (size_t i = 0; i < c.types.size(); ++i) {
      matrices.emplace_back(c.types[i], c.n_rows[i], c.n_cols, 7 * i + 1);
      bias.push_back(random.normals(c.n_rows[i]));
    }
  }
  // y of column `t` before the call.
  std::vector<float> before(uint32_t t, size_t part) const {
    return Random(99 * t + part).normals(the_case.n_rows[part]);
  }

  const Case& the_case;
  std::vector<std::vector<float>> x, bias;
  std::vector<float> norm;
  std::vector<Matrix> matrices;
};

using Results = std::vector<std::vector<std::vector<float>>>;  // [column][part][row]

// Columns [first, first + n_columns) and parts [first_part, first_part + n_parts).
Results run(const Data& d, uint32_t first, uint32_t n_columns, uint32_t first_part, uint32_t n_parts) {
  const Case& c = d.the_case;
  DeviceArrays arrays;
  GemvArgs a;
  a.n_parts = n_parts;
  a.norm = c.norm ? arrays.in(d.norm) : nullptr;
  a.eps = kEps;
  a.glu = c.glu;
  a.activation = c.activation;
  for (uint32_t i = 0; i < n_parts; ++i) {
    const Weight& w = d.matrices[first_part + i].w();
    std::vector<uint8_t> planes(w.n_rows * w.row_bytes);
    repack(w, 0, w.n_rows, planes.data());
    a.part[i].w = w;
    a.part[i].w.data = arrays.in(planes);
    a.part[i].bias = c.bias ? arrays.in(d.bias[first_part + i]) : nullptr;
    a.part[i].accumulate = c.accumulate;
  }
  Results y(n_columns);
  std::vector<GemvColumn> columns(n_columns);
  for (uint32_t t = 0; t < n_columns; ++t) {
    columns[t].x = arrays.in(d.x[first + t]);
    for (uint32_t i = 0; i < n_parts; ++i) y[t].push_back(d.before(first + t, first_part + i));
    for (uint32_t i = 0; i < n_parts; ++i) columns[t].y[i] = arrays.both(y[t][i]);
  }
  a.x = columns[0].x;
  for (uint32_t i = 0; i < n_parts; ++i) a.part[i].y = columns[0].y[i];
  a.more = columns.data() + 1;
  a.n_more = n_columns - 1;
  assert_true(has_step_gemv(a));
  check(step_gemv(a, static_cast<std::byte*>(arrays.room(packed_bytes(c.n_cols)))));
  arrays.finish();
  return y;
}

Results run(const Data& d) {
  return run(d, 0, d.the_case.n_columns, 0, static_cast<uint32_t>(d.the_case.types.size()));
}

// A product and how far it may be off.
struct Product {
  double value = 0.0, error = 0.0;
};

// Each input is off by a rounding error of a step's half at most, independent of the others: six standard deviations,
// and what the sums in f32 round.
Product product(const Weight& w, uint32_t row, const std::vector<double>& x) {
  std::vector<float> weights(w.n_cols);
  weight_type_info(w.type).decode(w.data + row * w.row_bytes, weights.data(), w.n_cols);
  double sum = 0.0, variance = 0.0, squares = 0.0;
  for (size_t first = 0; first < w.n_cols; first += 32) {
    double most = 0.0;
    for (size_t i = first; i < first + 32; ++i) most = std::max(most, std::abs(x[i]));
    for (size_t i = first; i < first + 32; ++i) {
      const double weight = weights[i], step = weight * most / 16256.0;
      sum += weight * x[i];
      squares += weight * x[i] * weight * x[i];
      variance += step * step / 12.0;
    }
  }
  return {sum, 6.0 * std::sqrt(variance) + 3e-6 * std::sqrt(squares)};
}

std::vector<double> input(const Data& d, uint32_t t) {
  std::vector<double> x(d.x[t].begin(), d.x[t].end());
  if (!d.the_case.norm) return x;
  double squares = 0.0;
  for (double v : x) squares += v * v;
  const double inverse = 1.0 / std::sqrt(squares / static_cast<double>(x.size()) + double{kEps});
  for (size_t i = 0; i < x.size(); ++i) x[i] *= inverse * d.norm[i];
  return x;
}

void expect_close(const Case& c, uint32_t t, size_t part, uint32_t row, double got, const Product& want) {
  if (std::abs(got - want.value) <= want.error + 1e-6 * std::abs(want.value)) return;
  fail_msg("%s, %u columns, input %u, part %zu, row %u: %.9g, not %.9g +- %.3g", weight_type_info(c.types[part]).name,
           c.n_cols, t, part, row, got, want.value, want.error);
}

void matches_products(const Case& c) {
  const Data d(c);
  const Results y = run(d);
  for (uint32_t t = 0; t < c.n_columns; ++t) {
    const std::vector<double> x = input(d, t);
    for (size_t part = 0; part < (c.glu ? 1 : c.types.size()); ++part) {
      const std::vector<float> before = d.before(t, part);
      for (uint32_t row = 0; row < c.n_rows[part]; ++row) {
        Product want = product(d.matrices[part].w(), row, x);
        if (c.bias) want.value += d.bias[part][row];
        if (c.accumulate) want.value += before[row];
        if (c.glu) {
          Product up = product(d.matrices[1].w(), row, x);
          if (c.bias) up.value += d.bias[1][row];
          const double value = ref::gated(c.activation, want.value, up.value);
          double error = 1e-5 * std::abs(value);
          for (double g : {-want.error, want.error})
            for (double u : {-up.error, up.error})
              error = std::max(error, std::abs(ref::gated(c.activation, want.value + g, up.value + u) - value));
          want = {value, error};
        }
        expect_close(c, t, part, row, double{y[t][part][row]}, want);
      }
    }
  }
}

constexpr WeightType kTypes[] = {
#define WEIR_INT_QUANT(Name, text) WeightType::k##Name,
#include "vulkan/int_quants.inc"
#undef WEIR_INT_QUANT
};

void test_types(void**) {
  for (WeightType type : kTypes) {
    for (uint32_t n_cols : {256u, 768u, 2816u}) matches_products({{type}, {37}, n_cols});
    matches_products({{type, type, type}, {37, 5, 1}, 512, true, true, true});
    matches_products({{type, type}, {19, 19}, 512, true, true, false, true});
  }
}

void test_widths(void**) {
  for (WeightType type : {WeightType::kQ8_0, WeightType::kQ4_0})
    for (uint32_t n_cols : {32u, 64u, 96u, 1056u, 2048u, 2080u, 4096u, 4128u, 8192u, 8224u, 14336u})
      for (bool norm : {false, true}) matches_products({{type}, {3}, n_cols, norm, norm});
}

// More rows than the subgroups of a launch, so that some take several; the numbers fit nothing.
void test_heights(void**) {
  for (uint32_t n_rows : {1u, 7u, 257u, 9001u}) matches_products({{WeightType::kQ8_0}, {n_rows}, 64, true});
  matches_products({{WeightType::kQ8_0, WeightType::kQ8_0}, {8641, 8641}, 32, false, false, false, true});
}

void test_parts(void**) {
  constexpr auto k8 = WeightType::kQ8_0, k4 = WeightType::kQ4_0;
  for (bool bias : {false, true}) {
    for (bool accumulate : {false, true}) {
      matches_products({{k8, k8}, {11, 53}, 288, true, bias, accumulate});
      matches_products({{k8, k8, k8}, {53, 11, 13}, 288, false, bias, accumulate});
      matches_products({{k8, k4, k4}, {9, 10, 11}, 288, true, bias, accumulate});
      matches_products({{k8, k4, k8}, {9, 10, 11}, 288, true, bias, accumulate});
    }
  }
}

void test_glu(void**) {
  for (Gate activation : {Gate::kSilu, Gate::kGelu, Gate::kClamped, Gate::kRelu}) {
    for (bool bias : {false, true}) {
      matches_products({{WeightType::kQ8_0, WeightType::kQ8_0}, {61, 61}, 1056, true, bias, false, true, activation});
      matches_products({{WeightType::kQ4_0, WeightType::kQ4_0}, {5, 5}, 14336, bias, bias, false, true, activation});
    }
  }
}

// Neither other parts nor other inputs change a result.
void equals_alone(const Case& c) {
  matches_products(c);
  const Data d(c);
  const Results all = run(d);
  const uint32_t n_parts = c.glu ? 1 : static_cast<uint32_t>(c.types.size());
  for (uint32_t t = 0; t < c.n_columns; ++t) {
    for (uint32_t part = 0; part < n_parts; ++part) {
      const Results one = run(d, t, 1, part, c.glu ? 2 : 1);
      assert_memory_equal(one[0][0].data(), all[t][part].data(), all[t][part].size() * sizeof(float));
    }
  }
}

void test_company(void**) {
  for (WeightType type : kTypes) {
    if (!test::is_type_tested(type, false)) continue;
    equals_alone({{type, type, type}, {37, 5, 70}, 768, true, true, true, false, Gate::kSilu, 3});
    equals_alone({{type, type}, {19, 19}, 1280, true, true, false, true, Gate::kSilu, 2});
  }
  constexpr auto k8 = WeightType::kQ8_0, k4 = WeightType::kQ4_0;
  // A constant of the kernel; three, and eight of Q8_0, are tested besides.
  for (uint32_t n : {2u, 5u, 7u, 8u}) {
    if (!test::every_variant() && n != 2 && n != 7) continue;
    equals_alone({{k8, k4, k8}, {9, 10, 11}, 1056, n % 2 == 0, (n < 6), (n > 6), false, Gate::kSilu, n});
    equals_alone({{k8, k8}, {13, 13}, 2080, (n < 6), (n > 6), false, true, Gate::kGelu, n});
  }
  equals_alone({{k8}, {3}, 14336, true, false, true, false, Gate::kSilu, 8});
  equals_alone({{k8}, {9001}, 64, true, false, false, false, Gate::kSilu, 2});  // more rows than subgroups
}

// A block that is 0 or next to it, or has a number that is not finite.
void test_odd_inputs(void**) {
  const Case c = {{WeightType::kQ8_0}, {9}, 96, false, true};
  Data d(c);
  std::fill(d.x[0].begin(), d.x[0].end(), 0.0f);
  d.x[0][40] = 1e-38f;
  const Results zero = run(d);
  assert_memory_equal(zero[0][0].data(), d.bias[0].data(), 9 * sizeof(float));
  for (float odd : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                    std::numeric_limits<float>::quiet_NaN()}) {
    d.x[0][41] = odd;
    const Results lost = run(d);
    for (float y : lost[0][0]) assert_true(std::isnan(y));
  }
  std::fill(d.x[0].begin(), d.x[0].end(), 1.0f);
  d.x[0][5] = 1e30f;  // and the others of its block are 0 beside it
  std::vector<double> x = input(d, 0);
  const std::vector<float> y = run(d)[0][0];
  for (uint32_t row = 0; row < 9; ++row) expect_close(c, 0, 0, row, double{y[row]}, product(d.matrices[0].w(), row, x));
}

void test_limits(void**) {
  DeviceArrays arrays;
  float* const x = static_cast<float*>(arrays.room(4));  // for its alignment
  const auto args = [&](WeightType type, uint32_t n_cols) {
    GemvArgs a;
    a.n_parts = 1;
    a.part[0].w = {reinterpret_cast<uint8_t*>(x), type, 1, n_cols, weight_row_bytes(type, n_cols)};
    a.x = x;
    return a;
  };
  assert_true(has_step_gemv(args(WeightType::kQ8_0, 14336)));
  assert_false(has_step_gemv(args(WeightType::kQ8_0, 14368)));
  assert_false(has_step_gemv(args(WeightType::kF16, 256)));
  GemvArgs a = args(WeightType::kQ8_0, 256);
  a.x = x + 1;
  assert_false(has_step_gemv(a));
  a = args(WeightType::kQ8_0, 256);
  a.part[1] = a.part[0];
  a.part[1].w.type = WeightType::kQ4_0;
  a.n_parts = 2;
  assert_true(has_step_gemv(a));
  a.glu = true;
  assert_false(has_step_gemv(a));
  Device& device = context().device;
  device.has_dot = false;
  assert_false(has_step_gemv(args(WeightType::kQ8_0, 256)));
  device.has_dot = true;
}

// The self-test's words are right as the definition has them, and no word may be off.
void test_self_test(void**) {
  uint32_t words[kInvocations];
  for (uint32_t i = 0; i < kInvocations; ++i) {
    const uint32_t a = i * kDotFactor, b = kDotOther - i;
    int8_t x[4], y[4];
    std::memcpy(x, &a, 4);
    std::memcpy(y, &b, 4);
    words[i] = static_cast<uint32_t>(x[0] * y[0] + x[1] * y[1] + x[2] * y[2] + x[3] * y[3]);
  }
  assert_true(check_self_test_dot(words));
  for (uint32_t& word : words) {
    word ^= 0x100u;
    assert_false(check_self_test_dot(words));
    word ^= 0x100u;
  }
}

}  // namespace
}  // namespace weir::vulkan

int main() {
  using namespace weir::vulkan;
  weir::test::open_context();
  if (!context().device.has_dot) return 77;
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_types),      cmocka_unit_test(test_widths), cmocka_unit_test(test_heights),
      cmocka_unit_test(test_parts),      cmocka_unit_test(test_glu),    cmocka_unit_test(test_company),
      cmocka_unit_test(test_odd_inputs), cmocka_unit_test(test_limits), cmocka_unit_test(test_self_test),
  };
  return cmocka_run_group_tests_name("vulkan_step_gemv", tests, nullptr, nullptr);
}
