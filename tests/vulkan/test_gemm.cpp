// vulkan: products of many rows, against products of the decoded weights in double: in f32, and by cooperative matrices
// where the device and the build have them; on the CPU driver, WEIR_TEST_VULKAN_DEVICE.
#include "vulkan/gemm.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "ops/gate_ref.h"
#include "quant/half.h"
#include "quant/planes.h"
#include "tests/ops/matmul_case.h"
#include "tests/variants.h"
#include "tests/vulkan/device_arrays.h"
#include "vulkan/self_test.h"

namespace weir::vulkan {
namespace {

using test::DeviceArrays;
using test::Matrix;
using test::Random;

constexpr WeightType kF32 = WeightType::kF32, kQ8_0 = WeightType::kQ8_0, kQ4_K = WeightType::kQ4_K;
constexpr WeightType kTypes[] = {
#define WEIR_QUANT(Name, text, gguf_id, block_weights, block_bytes) WeightType::k##Name,
#include "quant/quants.inc"
#undef WEIR_QUANT
};

void check(Status status) {
  if (!status.ok()) fail_msg("%s", last_error_text());
}

// Runs a test in f32, and by cooperative matrices if there are any.
template <class Test>
void each_way(const Test& run) {
  Device& d = test::open_context().device;
  const Matrices all = d.matrices;
  d.matrices = {};
  run();
  d.matrices = all;
  if (all.are_there()) run();
}

bool in_f16() { return context().device.matrices.are_there(); }

struct Case {
  std::vector<WeightType> types;  // of the parts; of gate and up
  std::vector<uint32_t> n_rows;
  uint32_t n_cols, n_tok;
  bool bias = false, accumulate = false, gates = false;
  bool glu = false;
  Gate activation = Gate::kSilu;
};

struct Data {
  explicit Data(const Case& c) : the_case(c) {
    Random random(c.n_cols + c.n_rows[0] + c.n_tok);
    x = random.normals(size_t{c.n_tok} * c.n_cols);
    if (c.gates) gates = random.normals(c.n_tok);
    for (size_t i = 0; i < c.types.size(); ++i) {
      matrices.emplace_back(c.types[i], c.n_rows[i], c.n_cols, 7 * i + 1);
      bias.push_back(random.normals(c.n_rows[i]));
      before.push_back(random.normals(size_t{c.n_tok} * c.n_rows[i]));
    }
  }

  const Case& the_case;
  std::vector<float> x, gates;
  std::vector<std::vector<float>> bias, before;
  std::vector<Matrix> matrices;
};

// y of every part, of all rows of x.
std::vector<std::vector<float>> run(const Data& d) {
  const Case& c = d.the_case;
  DeviceArrays arrays;
  OpContext cx;
  OpShapes shapes;
  shapes.max_tok = c.n_tok;
  shapes.max_cols = c.n_cols;
  cx.scratch_bytes = gemm_scratch_bytes(shapes);
  if (cx.scratch_bytes != 0) cx.scratch = static_cast<std::byte*>(arrays.room(cx.scratch_bytes));
  std::vector<std::vector<float>> y = d.before;
  MatmulArgs a = {{}, static_cast<uint32_t>(c.types.size()), arrays.in(d.x), c.n_tok};
  for (uint32_t i = 0; i < a.n_parts; ++i) {
    const Weight& w = d.matrices[i].w();
    std::vector<uint8_t> planes(w.n_rows * w.row_bytes);
    repack(w, 0, w.n_rows, planes.data());
    a.part[i] = {w, c.bias ? arrays.in(d.bias[i]) : nullptr, arrays.both(y[i]), c.accumulate};
    a.part[i].w.data = arrays.in(planes);
  }
  if (c.glu) {
    check(gemm_glu(
        cx, {a.part[0].y, a.part[0].w, a.part[1].w, a.x, a.n_tok, c.activation, a.part[0].bias, a.part[1].bias}));
  } else {
    check(gemm(cx, a, c.gates ? arrays.in(d.gates) : nullptr));
  }
  arrays.finish();
  return y;
}

// A product and how far it may be off.
struct Product {
  double value = 0.0, error = 0.0;
};

// f16 rounds weights and inputs by 2^-11 of themselves at most, inputs that are small beside the row's largest by 2^-25
// of that; eight standard deviations, and what f32 rounds in sums of so
// many terms.
Product product(const std::vector<float>& row, const float* x) {
  double sum = 0.0, squares = 0.0, variance = 0.0, most = 0.0;
  for (size_t i = 0; i < row.size(); ++i) most = std::max(most, std::abs(double{x[i]}));
  for (size_t i = 0; i < row.size(); ++i) {
    const double p = double{row[i]} * x[i], small = row[i] * most * 0x1p-25;
    sum += p;
    squares += p * p;
    variance += p * p * 0x1p-22 / 12 * 2 + small * small;
  }
  const double terms = 1e-6 + 3e-7 * std::sqrt(static_cast<double>(row.size()));
  return {sum, terms * std::sqrt(squares) + (in_f16() ? 8.0 * std::sqrt(variance) : 0.0)};
}

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

// The result of one element of the first part, or of any part that is not a gate.
Product expected(const Data& d, size_t part, uint32_t tok, uint32_t row, const std::vector<std::vector<float>>& rows,
                 const std::vector<float>* up_row) {
  const Case& c = d.the_case;
  const float* const x = d.x.data() + size_t{tok} * c.n_cols;
  Product p = product(rows[row], x);
  if (c.bias) p.value += double{d.bias[part][row]};
  if (c.gates) {
    const double gate = sigmoid(double{d.gates[tok]});
    p = {gate * p.value, gate * p.error + 1e-6};
  }
  if (c.accumulate) p.value += double{d.before[part][size_t{tok} * c.n_rows[part] + row]};
  if (up_row == nullptr) return p;
  Product up = product(*up_row, x);
  if (c.bias) up.value += double{d.bias[1][row]};
  const double value = ref::gated(c.activation, p.value, up.value);
  double error = 1e-5 * std::abs(value);
  for (double g : {-p.error, p.error})
    for (double u : {-up.error, up.error})
      error = std::max(error, std::abs(ref::gated(c.activation, p.value + g, up.value + u) - value));
  return {value, error};
}

std::vector<std::vector<float>> rows_of(const Weight& w) {
  std::vector<std::vector<float>> rows(w.n_rows, std::vector<float>(w.n_cols));
  for (uint32_t r = 0; r < w.n_rows; ++r)
    weight_type_info(w.type).decode(w.data + r * w.row_bytes, rows[r].data(), w.n_cols);
  return rows;
}

void matches_products(const Case& c) {
  const Data d(c);
  const std::vector<std::vector<float>> y = run(d);
  const std::vector<std::vector<float>> up = c.glu ? rows_of(d.matrices[1].w()) : std::vector<std::vector<float>>();
  for (size_t part = 0; part < (c.glu ? 1 : c.types.size()); ++part) {
    const std::vector<std::vector<float>> rows = rows_of(d.matrices[part].w());
    for (uint32_t tok = 0; tok < c.n_tok; ++tok) {
      for (uint32_t row = 0; row < c.n_rows[part]; ++row) {
        const Product want = expected(d, part, tok, row, rows, c.glu ? &up[row] : nullptr);
        const double got = double{y[part][size_t{tok} * c.n_rows[part] + row]};
        if (std::abs(got - want.value) <= want.error + 2e-6 * std::abs(want.value)) continue;
        fail_msg("%s, [%u, %u], %u rows of x, %s, part %zu, token %u, row %u: %.9g, not %.9g +- %.3g",
                 weight_type_info(c.types[part]).name, c.n_rows[part], c.n_cols, c.n_tok, in_f16() ? "f16" : "f32",
                 part, tok, row, got, want.value, want.error);
      }
    }
  }
}

void test_types(void**) {
  each_way([] {
    for (WeightType type : kTypes) {
      for (uint32_t n_tok : {11u, 19u})
        if (test::is_variant_of(type, n_tok)) matches_products({{type}, {37}, 256, n_tok});
      for (uint32_t n_tok : {16u, 33u})
        if (test::is_variant_of(type, n_tok))
          matches_products({{type, type, type}, {37, 5, 1}, 512, n_tok, true, true});
    }
  });
}

// Around every tile's edges.
void test_tokens(void**) {
  each_way([] {
    for (uint32_t n_tok : {9u, 15u, 16u, 17u, 31u, 32u, 33u, 63u, 64u, 65u, 127u, 128u, 129u, 257u, 300u})
      matches_products({{kQ8_0}, {33}, 96, n_tok});
  });
}

void test_heights(void**) {
  each_way([] {
    for (uint32_t n_rows : {1u, 3u, 63u, 64u, 65u, 127u, 128u, 129u, 255u, 257u, 300u})
      matches_products({{kQ8_0}, {n_rows}, 64, 18, true});
  });
}

void test_widths(void**) {
  each_way([] {
    for (uint32_t n_cols : {32u, 64u, 96u, 160u, 1056u, 4128u}) matches_products({{kQ8_0}, {9}, n_cols, 17});
  });
}

// Every tile, whatever the product's size would choose.
void test_every_tile(void**) {
  each_way([] {
    const MatrixTiles tiles = context().device.tiles;
    std::vector<MatrixTile> all(tiles.begin(), tiles.end());
    all.push_back({64, 64, 32, 256});
    all.push_back({64, 64, 64, 128});
    for (const MatrixTile& tile : all) {
      context().device.tiles.fill(tile);
      context().pipelines.close(context().device);
      check(context().pipelines.open(context().device));
      matches_products({{kQ8_0}, {300}, 96, 140, true, true});
      matches_products({{kQ4_K}, {130}, 256, 40});
    }
    context().device.tiles = tiles;
    context().pipelines.close(context().device);
    check(context().pipelines.open(context().device));
  });
}

void test_gates(void**) {
  each_way([] {
    for (bool accumulate : {false, true}) matches_products({{kQ8_0}, {37}, 96, 20, true, accumulate, true});
    for (Gate gate : {Gate::kSilu, Gate::kGelu, Gate::kClamped, Gate::kRelu}) {
      for (bool bias : {false, true})
        matches_products({{kQ8_0, kQ8_0}, {70, 70}, 64, 40, bias, false, false, true, gate});
      matches_products({{kQ4_K, kF32}, {37, 37}, 256, 9, false, false, false, true, gate});
    }
  });
}

// Rows of x keep their precision whatever their size, and what is no number is seen in its row alone.
void test_ranges(void**) {
  each_way([] {
    const Case c = {{kQ8_0}, {40}, 96, 12};
    Data d(c);
    const std::vector<float> plain = run(d)[0];
    for (float factor : {0x1p-90f, 0x1p90f}) {
      Data far(c);
      for (float& v : far.x) v *= factor;
      std::vector<float> y = run(far)[0];
      for (float& v : y) v /= factor;
      assert_memory_equal(y.data(), plain.data(), y.size() * sizeof(float));
    }
    for (float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      Data with(c);
      with.x[5 * 96 + 17] = bad;
      const std::vector<float> y = run(with)[0];
      for (size_t i = 0; i < y.size(); ++i)
        if (std::isfinite(y[i]) != (i / 40 != 5)) fail_msg("token %zu: %g", i / 40, double{y[i]});
    }
    Data zeros(c);
    std::fill_n(zeros.x.begin() + 3 * 96, 96, 0.0f);
    const std::vector<float> y = run(zeros)[0];
    for (size_t i = 0; i < 40; ++i) assert_true(y[3 * 40 + i] == 0.0f);
  });
}

void test_company(void**) {
  each_way([] {
    for (WeightType type : {kQ8_0, kF32}) {
      const Case all = {{type}, {150}, 288, 140, true}, few = {{type}, {150}, 288, 9, true};
      const Data d(all);
      const std::vector<float> y = run(d)[0];
      Data part(few);
      part.bias = d.bias;
      part.x.assign(d.x.begin() + 60 * 288, d.x.begin() + 69 * 288);
      assert_memory_equal(run(part)[0].data(), &y[60 * 150], size_t{9} * 150 * sizeof(float));
    }
  });
}

// As many dispatches as slow devices need; 1: a tile each.
void test_dispatches(void**) {
  Context& context = test::open_context();
  Device& device = context.device;
  const Matrices matrices = device.matrices;
  const uint64_t max_flops = device.max_flops;
  device.matrices = {};
  context.recorder.set_always_barrier(true);  // which counts commands
  for (const Case& c : {Case{{kQ8_0}, {70}, 96, 150, true, true, true}, Case{{kQ4_K, kQ8_0}, {37, 5}, 256, 130},
                        Case{{kQ8_0, kQ8_0}, {37, 37}, 64, 200, true, false, false, true}}) {
    const Data d(c);
    device.max_flops = UINT64_MAX;
    const uint64_t start = context.recorder.n_barriers();
    const std::vector<std::vector<float>> whole = run(d);
    const uint64_t n_whole = context.recorder.n_barriers() - start;
    uint64_t n_before = UINT64_MAX;
    for (uint64_t most : {uint64_t{1}, uint64_t{2} * c.n_rows[0] * c.n_cols * 130}) {
      device.max_flops = most;
      const uint64_t before = context.recorder.n_barriers();
      const std::vector<std::vector<float>> y = run(d);
      const uint64_t n = context.recorder.n_barriers() - before;
      assert_true(n > n_whole && n < n_before);  // a tile each are the most
      n_before = n;
      for (size_t i = 0; i < y.size(); ++i)
        assert_memory_equal(y[i].data(), whole[i].data(), y[i].size() * sizeof(float));
    }
  }
  context.recorder.set_always_barrier(false);
  device.max_flops = max_flops;
  device.matrices = matrices;
}

// What the self-test calls right, and what wrong.
void test_self_test(void**) {
  static MatrixTest t;
  fill_matrix_test(t);
  assert_false(check_matrix_test(t));
  for (uint32_t tok = 0; tok < kMatrixTestTokens; ++tok) {
    for (uint32_t row = 0; row < kMatrixTestRows; ++row) {
      double sum = 0.0;
      for (uint32_t i = 0; i < kMatrixTestCols; ++i)
        sum += double{f16_to_f32(t.x[tok * kMatrixTestCols + i])} * f16_to_f32(t.w[row * kMatrixTestCols + i]);
      t.y[tok * kMatrixTestRows + row] = static_cast<float>(sum) * t.scales[tok];
    }
  }
  assert_true(check_matrix_test(t));
  float& last = t.y[kMatrixTestTokens * kMatrixTestRows - 1];
  last = std::nextafter(last, 1e9f);
  assert_false(check_matrix_test(t));
}

void test_too_little_scratch(void**) {
  DeviceArrays arrays;
  if (!in_f16()) skip();
  OpContext cx;
  const Matrix m(kQ8_0, 8, 32, 1);
  const std::vector<float> x(9 * 32);
  std::vector<float> y(9 * 8);
  const Status status = gemm(cx, {{{m.w(), nullptr, arrays.both(y), false}, {}, {}}, 1, arrays.in(x), 9}, nullptr);
  assert_int_equal(status.code(), WEIR_ERR_INTERNAL);
}

}  // namespace
}  // namespace weir::vulkan

int main() {
  using namespace weir::vulkan;
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_types),      cmocka_unit_test(test_tokens),
      cmocka_unit_test(test_heights),    cmocka_unit_test(test_widths),
      cmocka_unit_test(test_gates),      cmocka_unit_test(test_ranges),
      cmocka_unit_test(test_every_tile), cmocka_unit_test(test_company),
      cmocka_unit_test(test_self_test),  cmocka_unit_test(test_too_little_scratch),
      cmocka_unit_test(test_dispatches),
  };
  return cmocka_run_group_tests_name("vulkan_gemm", tests, nullptr, nullptr);
}
