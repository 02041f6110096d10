// ops: glu_matmul. Mirrors lib/ops/glu_matmul_ref.cpp, lib/cpu/matmul.cpp and what it calls.
#include <algorithm>
#include <cstring>

#include "tests/ops/matmul_case.h"
#include "tests/variants.h"

namespace weir::test {
namespace {

struct Spec {
  const char* name;
  WeightType gate, up;
  uint32_t n_rows, n_cols;
  double max_nmse;
  const char* reason;
};

constexpr double kIntegerNmse = 5e-9;
constexpr char kIntegerReason[] = "inputs are rounded to 16 bits, in both factors";
constexpr char kFloatReason[] = "sums in f32, in another order";
// The errors of n rounded sums, n / 3 * 2^-48, of four lanes' sums of 3,584 terms; both factors, and ten times that.
constexpr double kLongNmse = 8e-11;
constexpr char kLongReason[] = "sums of 14336 products in f32";

// Two GEMMs; the gate's error counts up to twice where its activation is steep.
constexpr double kCudaNmse = 5 * kCudaGemmNmse;
constexpr char kCudaReason[] = "prompts are multiplied in f16, in both factors";

constexpr Spec kSpecs[] = {
// Every type of the list, in a width of its blocks.
#define WEIR_QUANT(Name, text, gguf_id, block_weights, block_bytes) \
  {text,                                                            \
   WeightType::k##Name,                                             \
   WeightType::k##Name,                                             \
   131,                                                             \
   block_weights == 1    ? 77                                       \
   : block_weights == 32 ? 288                                      \
   : block_weights == 64 ? 320                                      \
                         : 512,                                     \
   block_weights == 1 ? 1e-12 : kIntegerNmse,                       \
   block_weights == 1 ? kFloatReason : kIntegerReason},
#include "quant/quants.inc"
#undef WEIR_QUANT
    {"q4_k_and_q6_k", WeightType::kQ4_K, WeightType::kQ6_K, 61, 256, kIntegerNmse, kIntegerReason},
    {"q5_k_and_f16", WeightType::kQ5_K, WeightType::kF16, 61, 256, kIntegerNmse, kIntegerReason},
    {"f16_and_q8_0", WeightType::kF16, WeightType::kQ8_0, 61, 256, kIntegerNmse, kIntegerReason},
    {"wide_f32", WeightType::kF32, WeightType::kF32, 61, 640, 1e-12, kFloatReason},
    {"wide_f16", WeightType::kF16, WeightType::kF16, 61, 640, 1e-12, kFloatReason},
    {"wide_q5_k", WeightType::kQ5_K, WeightType::kQ5_K, 61, 1280, kIntegerNmse, kIntegerReason},
    {"wide_q6_k", WeightType::kQ6_K, WeightType::kQ6_K, 61, 1280, kIntegerNmse, kIntegerReason},
    // Eight inputs do not fit into an SM's shared memory together.
    {"split_q8_0", WeightType::kQ8_0, WeightType::kQ8_0, 24, 14336, kIntegerNmse, kIntegerReason},
    {"split_f16", WeightType::kF16, WeightType::kF16, 24, 14336, kLongNmse, kLongReason},
    // Heights and widths that the GPU's GEMM supports.
    {"even_f32", WeightType::kF32, WeightType::kF32, 136, 96, 1e-12, kFloatReason},
    {"even_q8_0", WeightType::kQ8_0, WeightType::kQ8_0, 136, 288, kIntegerNmse, kIntegerReason},
    {"even_q4_0", WeightType::kQ4_0, WeightType::kQ4_0, 136, 352, kIntegerNmse, kIntegerReason},
    {"even_q4_k_and_q6_k", WeightType::kQ4_K, WeightType::kQ6_K, 136, 256, kIntegerNmse, kIntegerReason},
};

// Pairs of different types are left to the reference.
bool is_tested(const Spec& s) { return s.gate != s.up || is_type_tested(s.gate, false); }

bool has_variants(const Spec& s, uint32_t n_tok) { return is_variant_of(s.gate, n_tok) && is_variant_of(s.up, n_tok); }

std::vector<float> run(const Backend& backend, const Weight& gate, const Weight& up, const std::vector<float>& x,
                       uint32_t n_tok, uint32_t n_threads, Gate activation = Gate::kSilu) {
  std::vector<float> y(size_t{n_tok} * gate.n_rows, NAN);
  Machine machine(backend, matmul_shapes(std::max(gate.n_cols, gate.n_rows), n_tok, n_threads));
  machine.check(backend.ops.glu_matmul(machine.cx(), {y.data(), gate, up, x.data(), n_tok, activation}));
  return y;
}

std::vector<Output> run_spec(const Backend& backend, const Spec& s, Gate activation) {
  const Matrix gate(s.gate, s.n_rows, s.n_cols, 1), up(s.up, s.n_rows, s.n_cols, 2);
  std::vector<Output> outputs;
  for (uint32_t n_tok : {1u, 2u, 5u, 8u, 9u, 17u, 64u}) {
    if (!has_variants(s, n_tok)) continue;
    const std::vector<float> x = Random(n_tok).normals(size_t{n_tok} * s.n_cols, 2.0f);
    outputs.push_back({"y", run(backend, gate.w(), up.w(), x, n_tok, 2, activation)});
  }
  return outputs;
}

void does_not_depend_on_threads(const Backend& backend) {
  for (const Spec& s : kSpecs) {
    if (!is_tested(s)) continue;
    const uint32_t n_rows = rows_on(backend, s.n_rows, s.n_cols);
    const Matrix gate(s.gate, n_rows, s.n_cols, 1), up(s.up, n_rows, s.n_cols, 2);
    for (uint32_t n_tok : {1u, 7u, 12u, 40u}) {
      if (!has_variants(s, n_tok)) continue;
      const std::vector<float> x = Random(3).normals(size_t{n_tok} * s.n_cols);
      const std::vector<float> one = run(backend, gate.w(), up.w(), x, n_tok, 1);
      for (uint32_t n_threads : {2u, 3u}) {
        const std::vector<float> more = run(backend, gate.w(), up.w(), x, n_tok, n_threads);
        assert_memory_equal(more.data(), one.data(), one.size() * sizeof(float));
      }
    }
  }
}

// Up to eight tokens at once give the bits of single tokens. Two weight types, or a width that the GPU's GEMV does not
// support, give nothing to compare with.
void few_tokens_match_single_ones(const Backend& backend) {
  constexpr uint32_t kMax = 8;
  for (const Spec& s : kSpecs) {
    if (s.gate != s.up || s.n_cols % 32 != 0 || !is_tested(s)) continue;
    const uint32_t n_rows = rows_on(backend, s.n_rows, s.n_cols);
    const Matrix gate(s.gate, n_rows, s.n_cols, 1), up(s.up, n_rows, s.n_cols, 2);
    const std::vector<float> x = Random(4).normals(size_t{kMax} * s.n_cols, 2.0f);
    std::vector<float> singles;
    for (size_t t = 0; t < kMax; ++t) {
      const std::vector<float> token(x.begin() + t * s.n_cols, x.begin() + (t + 1) * s.n_cols),
          y = run(backend, gate.w(), up.w(), token, 1, 2);
      singles.insert(singles.end(), y.begin(), y.end());
    }
    for (uint32_t n_tok = 2; n_tok <= kMax; ++n_tok) {
      if (!has_variants(s, n_tok)) continue;
      const std::vector<float> some(x.begin(), x.begin() + size_t{n_tok} * s.n_cols),
          y = run(backend, gate.w(), up.w(), some, n_tok, 2);
      if (std::memcmp(y.data(), singles.data(), y.size() * sizeof(float)) != 0)
        fail_msg("%s, %u tokens: not the same bits", s.name, n_tok);
    }
  }
}

// silu over the whole range of its argument: gate and up are 1 x 1 matrices, so that y = silu(g x) * x.
void silu_is_exact_everywhere(const Backend& backend) {
  std::vector<float> x;
  for (float f = -200.0f; f <= 200.0f; f += 0.37f) x.push_back(f);
  for (float f : {0.0f, -0.0f, 1e-30f, -1e-30f, 1e-5f, 1e4f, -1e4f, -87.5f, -88.5f, -104.0f}) x.push_back(f);
  const float one = 1.0f;
  const Weight w = {reinterpret_cast<const uint8_t*>(&one), WeightType::kF32, 1, 1, 4};
  const auto n = static_cast<uint32_t>(x.size());
  const std::vector<float> y = run(backend, w, w, x, n, 1);
  for (size_t i = 0; i < n; ++i) {
    const double want = double{x[i]} / (1.0 + std::exp(-double{x[i]})) * double{x[i]};
    if (!(std::fabs(double{y[i]} - want) <= 1e-6 * std::fabs(want) + 1e-30))
      fail_msg("silu(%g): %.9g, not %.9g", double{x[i]}, double{y[i]}, want);
  }
}

// GELU in the same way. Its exponent grows with the third power of the input, and so does the error of the exponential.
void gelu_is_exact_everywhere(const Backend& backend) {
  std::vector<float> x;
  for (float f = -200.0f; f <= 200.0f; f += 0.37f) x.push_back(f);
  for (float f = -8.0f; f <= 8.0f; f += 0.01f) x.push_back(f);
  for (float f : {0.0f, -0.0f, 1e-30f, -1e-30f, 1e-5f, 1e4f, -1e4f}) x.push_back(f);
  const float one = 1.0f;
  const Weight w = {reinterpret_cast<const uint8_t*>(&one), WeightType::kF32, 1, 1, 4};
  const auto n = static_cast<uint32_t>(x.size());
  const std::vector<float> y = run(backend, w, w, x, n, 1, Gate::kGelu);
  for (size_t i = 0; i < n; ++i) {
    const double g = double{x[i]}, u = std::sqrt(2.0 / std::acos(-1.0)) * (g + 0.044715 * g * g * g);
    const double want = g / (1.0 + std::exp(-2.0 * u)) * g;
    if (!(std::fabs(double{y[i]} - want) <= 1e-5 * std::fabs(want) + 1e-12))
      fail_msg("gelu(%g): %.9g, not %.9g", g, double{y[i]}, want);
  }
}

// The clamped gate in the same way, where up is the input too: both sides of both limits.
void clamped_is_exact_everywhere(const Backend& backend) {
  std::vector<float> x;
  for (float f = -200.0f; f <= 200.0f; f += 0.37f) x.push_back(f);
  for (float f = -8.0f; f <= 8.0f; f += 0.01f) x.push_back(f);
  for (float f : {0.0f, -0.0f, 1e-30f, 7.0f, -7.0f, 1e4f, -1e4f}) x.push_back(f);
  const float one = 1.0f;
  const Weight w = {reinterpret_cast<const uint8_t*>(&one), WeightType::kF32, 1, 1, 4};
  const auto n = static_cast<uint32_t>(x.size());
  const std::vector<float> y = run(backend, w, w, x, n, 1, Gate::kClamped);
  for (size_t i = 0; i < n; ++i) {
    const double g = std::min(double{x[i]}, 7.0), u = std::clamp(double{x[i]}, -7.0, 7.0);
    const double want = g / (1.0 + std::exp(-1.702 * g)) * (u + 1.0);
    if (!(std::fabs(double{y[i]} - want) <= 1e-5 * std::fabs(want) + 1e-12))
      fail_msg("clamped(%g): %.9g, not %.9g", double{x[i]}, double{y[i]}, want);
  }
  const std::vector<float> bad = run(backend, w, w, {NAN, 1.0f}, 2, 1, Gate::kClamped);
  assert_true(std::isnan(bad[0]) && !std::isnan(bad[1]));
}

// One matrix as gate and up is the squared ReLU, exactly; a NaN passes.
void relu_is_exact_everywhere(const Backend& backend) {
  const std::vector<float> x = {0.0f, -0.0f, 1e-30f, -1e-30f, 0.3f, -0.3f, 7.0f, -7.0f, 1e4f, -1e4f, NAN, 1.0f};
  const float one = 1.0f;
  const Weight w = {reinterpret_cast<const uint8_t*>(&one), WeightType::kF32, 1, 1, 4};
  const auto n = static_cast<uint32_t>(x.size());
  const std::vector<float> y = run(backend, w, w, x, n, 1, Gate::kRelu);
  for (size_t i = 0; i < n; ++i) {
    const float want = x[i] < 0.0f ? 0.0f : x[i] * x[i];
    if (std::isnan(x[i]) ? !std::isnan(y[i]) : std::fabs(y[i] - want) > 1e-6f * want)
      fail_msg("relu(%g): %.9g, not %.9g", double{x[i]}, double{y[i]}, double{want});
  }
}

// Biases are added before the gate, to every token.
std::vector<Output> run_with_biases(const Backend& backend, WeightType type) {
  constexpr uint32_t kRows = 136, kCols = 96;
  const Matrix gate(type, kRows, kCols, 1), up(type, kRows, kCols, 2);
  const std::vector<float> gate_bias = Random(5).normals(kRows), up_bias = Random(6).normals(kRows);
  std::vector<Output> outputs;
  for (uint32_t n_tok : {1u, 3u, 8u, 40u}) {
    const std::vector<float> x = Random(7).normals(size_t{n_tok} * kCols);
    std::vector<float> y(size_t{n_tok} * kRows, NAN);
    Machine machine(backend, matmul_shapes(kRows, n_tok, 2));
    machine.check(backend.ops.glu_matmul(
        machine.cx(), {y.data(), gate.w(), up.w(), x.data(), n_tok, Gate::kSilu, gate_bias.data(), up_bias.data()}));
    outputs.push_back({"y", y});
  }
  return outputs;
}

// Gate 0 gives 0, gate 1 gives 1 / (1 + 1/e) times up.
void golden(const Backend& backend) {
  const float gate[4] = {0, 0, 1, 0}, up[4] = {1, 1, 0, 2};
  const Weight g = {reinterpret_cast<const uint8_t*>(gate), WeightType::kF32, 2, 2, 8},
               u = {reinterpret_cast<const uint8_t*>(up), WeightType::kF32, 2, 2, 8};
  const std::vector<float> y = run(backend, g, u, {1, 3}, 1, 1);
  assert_true(y[0] == 0.0f);
  assert_float_equal(y[1], 6 * 0.731058579f, 1e-5f);
}

std::vector<OpCase> cases() {
  std::vector<OpCase> list;
  for (const Spec& s : kSpecs) {
    if (!is_tested(s)) continue;
    for (const Gate gate : {Gate::kSilu, Gate::kGelu, Gate::kClamped, Gate::kRelu}) {
      constexpr const char* kPrefixes[] = {"", "gelu_", "clamped_", "relu_"};
      const char* const prefix = kPrefixes[static_cast<size_t>(gate)];
      list.push_back({std::string("glu_matmul__") + prefix + s.name,
                      [&s, gate](const Backend& b) { return run_spec(b, s, gate); }, s.max_nmse, s.reason, kCudaNmse,
                      kCudaReason, -1.0, true});
    }
  }
  for (const WeightType type : {WeightType::kQ8_0, WeightType::kF32}) {
    const bool floats = type == WeightType::kF32;
    list.push_back({std::string("glu_matmul__biases_") + weight_type_info(type).name,
                    [type](const Backend& b) { return run_with_biases(b, type); }, floats ? 1e-12 : kIntegerNmse,
                    floats ? kFloatReason : kIntegerReason, kCudaNmse, kCudaReason, -1.0, true});
  }
  return list;
}

}  // namespace
}  // namespace weir::test

int main() {
  using namespace weir::test;
  return run_group("ops/glu_matmul", cases(),
                   {{"glu_matmul__golden", golden},
                    {"glu_matmul__does_not_depend_on_threads", does_not_depend_on_threads},
                    {"glu_matmul__few_tokens_match_single_ones", few_tokens_match_single_ones},
                    {"glu_matmul__silu_is_exact_everywhere", silu_is_exact_everywhere},
                    {"glu_matmul__gelu_is_exact_everywhere", gelu_is_exact_everywhere},
                    {"glu_matmul__relu_is_exact_everywhere", relu_is_exact_everywhere},
                    {"glu_matmul__clamped_is_exact_everywhere", clamped_is_exact_everywhere}});
}
