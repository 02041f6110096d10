// ops: matmul, embed. Mirrors lib/ops/matmul_ref.cpp, lib/ops/embed_ref.cpp, lib/cpu/matmul.cpp and what it calls.
#include <algorithm>
#include <limits>

#include "quant/blocks.h"
#include "tests/ops/matmul_case.h"
#include "tests/variants.h"

namespace weir::test {
namespace {

struct TypeRow {
  WeightType type;
  std::vector<uint32_t> n_cols;
  double max_nmse;   // for normally distributed inputs
  double max_error;  // largest |got - want|; the root mean square of want is about 1
  const char* reason;
};

// Inputs have 16 bits with one scale per 256 of them: the rounding error is +-2.8/32767/2 for a normal distribution,
// the relative variance 6e-10.
constexpr double kIntegerNmse = 3e-9;
// The largest of 8000 results, whose standard deviation is 2.5e-5, and twice that in rows with large weights: five
// deviations.
constexpr double kIntegerError = 2.5e-4;
constexpr char kIntegerReason[] = "inputs are rounded to 16 bits";
// Rounding of a running sum of some hundred terms: a few times 2^-24, squared.
constexpr double kFloatNmse = 1e-12, kFloatError = 1e-5;
constexpr char kFloatReason[] = "sums in f32, in another order";

// GEMM on the GPU: five standard deviations of the results, twice that for rows with large weights.
constexpr double kCudaGemmError = 5e-3;

// The row of a weight type. The last width is a multiple of 32, which the GPU needs.
TypeRow row_of(WeightType type, uint32_t block_weights) {
  if (block_weights == 1) return {type, {1, 7, 33, 300, 513, 288}, kFloatNmse, kFloatError, kFloatReason};
  const std::vector<uint32_t> n_cols = block_weights == 32   ? std::vector<uint32_t>{32, 288, 384, 608}
                                       : block_weights == 64 ? std::vector<uint32_t>{64, 320, 384, 576}
                                                             : std::vector<uint32_t>{256, 768};
  return {type, n_cols, kIntegerNmse, kIntegerError, kIntegerReason};
}

// Every type of the list, so that a new type is tested without a change here.
const TypeRow kTypes[] = {
#define WEIR_QUANT(Name, text, gguf_id, block_weights, block_bytes) row_of(WeightType::k##Name, block_weights),
#include "quant/quants.inc"
#undef WEIR_QUANT
};

constexpr uint32_t kTokens[] = {1, 2, 3, 5, 8, 9, 16, 17, 33, 64};
constexpr uint32_t kHeights[] = {1, 3, 37, 131, 136};  // the GPU's GEMM has the last one, its GEMV the others

bool is_gpu(const Backend& backend) { return backend.device == WEIR_DEVICE_CUDA; }
// The GPU multiplies up to eight tokens as it does single ones.
bool is_gpu_prompt(const Backend& backend, uint32_t n_tok) { return is_gpu(backend) && n_tok > 8; }
bool is_f16_prompt(const Backend& backend, uint32_t n_tok) { return has_f16_prompts(backend) && n_tok > 8; }
double nmse_of(const Backend& backend, const TypeRow& row, uint32_t n_tok) {
  return is_f16_prompt(backend, n_tok) ? kCudaGemmNmse : row.max_nmse;
}
double error_of(const Backend& backend, const TypeRow& row, uint32_t n_tok) {
  return is_f16_prompt(backend, n_tok) ? kCudaGemmError : row.max_error;
}

void assert_close(const char* what, const std::vector<float>& got, const std::vector<float>& want, double max_nmse,
                  double max_error) {
  assert_true(close_enough(what, got.data(), want.data(), got.size(), max_nmse));
  const Difference d = difference(got.data(), want.data(), got.size());
  if (!(d.worst_abs <= max_error))
    fail_msg("%s: element %zu is %.9g, not %.9g", what, d.worst, double{d.got}, double{d.want});
}

void assert_same(const char* what, const std::vector<float>& a, const std::vector<float>& b) {
  assert_int_equal(a.size(), b.size());
  if (std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) != 0) fail_msg("%s: not the same bits", what);
}

const char* describe(const Backend& backend, const TypeRow& row, uint32_t n_rows, uint32_t n_cols, uint32_t n_tok) {
  static char text[128];
  std::snprintf(text, sizeof text, "%s [%u, %u], %u tokens (%s)", weight_type_info(row.type).name, n_rows, n_cols,
                n_tok, is_f16_prompt(backend, n_tok) ? kCudaGemmReason : row.reason);
  return text;
}

void matches_reference(const Backend& backend, const TypeRow& row) {
  for (uint32_t n_cols : row.n_cols) {
    for (uint32_t height : kHeights) {
      const uint32_t n_rows = rows_on(backend, height, n_cols);
      const Matrix m(row.type, n_rows, n_cols, n_cols + n_rows);
      for (uint32_t n_tok : kTokens) {
        if (!is_variant_of(row.type, n_tok)) continue;
        // A few results may all happen to be small, so the NMSE is checked for many only.
        const double max_nmse = n_rows < 37 ? 1.0 : nmse_of(backend, row, n_tok);
        const std::vector<float> x = Random(n_tok).normals(size_t{n_tok} * n_cols);
        const std::vector<float> want = multiply(reference_backend(), m.w(), x, n_tok);
        assert_close(describe(backend, row, n_rows, n_cols, n_tok), multiply(backend, m.w(), x, n_tok), want, max_nmse,
                     error_of(backend, row, n_tok));
      }
    }
  }
}

// Neither the number of threads, nor other rows and tokens of the call may change a result, within one implementation.
// The GPU's GEMM takes multiples of eight rows and more than eight tokens; fewer go through its GEMV.
void results_do_not_depend_on_company(const Backend& backend, const TypeRow& row) {
  const uint32_t n_cols = row.n_cols.back(), n_rows = is_gpu(backend) ? 136 : rows_on(backend, 131, n_cols);
  const Matrix m(row.type, n_rows, n_cols, 5);
  for (uint32_t n_tok : {1u, 2u, 7u, 8u, 16u, 64u}) {
    if (!is_variant_of(row.type, n_tok)) continue;
    const std::vector<float> x = Random(9).normals(size_t{n_tok} * n_cols);
    const std::vector<float> one = multiply(backend, m.w(), x, n_tok, 1);
    assert_same("2 threads", multiply(backend, m.w(), x, n_tok, 2), one);
    assert_same("3 threads", multiply(backend, m.w(), x, n_tok, 3), one);
    for (uint32_t first : {0u, 1u, 40u, n_rows - 1}) {
      if (is_gpu_prompt(backend, n_tok)) first -= first % 8;
      const uint32_t n = std::min(n_rows - first, is_gpu_prompt(backend, n_tok) ? 8u : 5u);
      const std::vector<float> part = multiply(backend, m.rows(first, n), x, n_tok);
      for (uint32_t t = 0; t < n_tok; ++t)
        assert_memory_equal(&part[size_t{t} * n], &one[size_t{t} * n_rows + first], n * sizeof(float));
    }
    const uint32_t fewer = n_tok > 8 ? 9 : 1;
    for (uint32_t t = 0; t + fewer <= n_tok; t += fewer) {
      const std::vector<float> part(x.begin() + t * n_cols, x.begin() + (t + fewer) * n_cols);
      assert_memory_equal(multiply(backend, m.w(), part, fewer).data(), &one[size_t{t} * n_rows],
                          size_t{fewer} * n_rows * sizeof(float));
    }
  }
}

// Up to eight tokens at once give the bits of single tokens: what a session decodes must not depend on the sessions
// that decode beside it. Shapes: rows for several rounds of the widest GPU, and inputs of which eight do not fit into
// an SM's shared memory.
void few_tokens_match_single_ones(const Backend& backend, const TypeRow& row) {
  constexpr struct { uint32_t n_rows, n_cols; } kShapes[] = {{37, 256}, {2341, 1280}, {37, 14336}};
  constexpr uint32_t kMax = 8;
  if (!is_variant_of(row.type, 2)) return;  // then no larger number either
  for (const auto& shape : kShapes) {
    const uint32_t n_cols = shape.n_cols, n_rows = rows_on(backend, shape.n_rows, n_cols);
    const Matrix m(row.type, n_rows, n_cols, 18);
    const std::vector<float> bias = Random(19).normals(n_rows), x = Random(20).normals(size_t{kMax} * n_cols),
                             before = Random(21).normals(size_t{kMax} * n_rows);
    std::vector<float> singles;
    for (size_t t = 0; t < kMax; ++t) {
      const std::vector<float> token(x.begin() + t * n_cols, x.begin() + (t + 1) * n_cols),
          old(before.begin() + t * n_rows, before.begin() + (t + 1) * n_rows),
          y = multiply(backend, m.w(), token, 1, 2, bias.data(), &old);
      singles.insert(singles.end(), y.begin(), y.end());
    }
    for (uint32_t n_tok = 2; n_tok <= kMax; ++n_tok) {
      if (!is_variant_of(row.type, n_tok)) continue;
      const std::vector<float> some(x.begin(), x.begin() + size_t{n_tok} * n_cols),
          old(before.begin(), before.begin() + size_t{n_tok} * n_rows),
          want(singles.begin(), singles.begin() + size_t{n_tok} * n_rows);
      assert_same(describe(backend, row, n_rows, n_cols, n_tok),
                  multiply(backend, m.w(), some, n_tok, 2, bias.data(), &old), want);
    }
  }
}

void accumulate_and_bias(const Backend& backend, const TypeRow& row, uint32_t n_rows) {
  const uint32_t n_cols = row.n_cols.back();
  const Matrix m(row.type, n_rows, n_cols, 6);
  const std::vector<float> bias = Random(1).normals(n_rows);
  for (uint32_t n_tok : {1u, 6u, 11u, 19u}) {
    if (!is_variant_of(row.type, n_tok)) continue;
    const std::vector<float> x = Random(2).normals(size_t{n_tok} * n_cols),
                             before = Random(3).normals(size_t{n_tok} * n_rows);
    for (const float* b : {static_cast<const float*>(nullptr), bias.data()}) {
      for (const std::vector<float>* old : {static_cast<const std::vector<float>*>(nullptr), &before}) {
        assert_close("accumulate and bias", multiply(backend, m.w(), x, n_tok, 2, b, old),
                     multiply(reference_backend(), m.w(), x, n_tok, 2, b, old), nmse_of(backend, row, n_tok),
                     error_of(backend, row, n_tok));
      }
    }
  }
}

// Parts of different heights and types, integer and float ones mixed.
void parts_of(const Backend& backend, uint32_t n_q, uint32_t n_k, uint32_t n_v) {
  const Matrix q(WeightType::kQ4_K, n_q, 512, 1), k(WeightType::kF16, n_k, 512, 2), v(WeightType::kQ6_K, n_v, 512, 3);
  const std::vector<float> bias = Random(4).normals(n_k);
  for (uint32_t n_tok : {1u, 2u, 4u, 12u, 40u}) {
    if (!is_variant_of(WeightType::kQ6_K, n_tok)) continue;
    const std::vector<float> x = Random(5).normals(size_t{n_tok} * 512);
    std::vector<float> y[3] = {std::vector<float>(n_tok * n_q, NAN), std::vector<float>(n_tok * n_k, 1.5f),
                               std::vector<float>(n_tok * n_v, NAN)};
    const std::vector<float> before = y[1];
    Machine machine(backend, matmul_shapes(512, n_tok, 3));
    machine.check(backend.ops.matmul(machine.cx(), {{{q.w(), nullptr, y[0].data(), false},
                                                     {k.w(), bias.data(), y[1].data(), true},
                                                     {v.w(), nullptr, y[2].data(), false}},
                                                    3,
                                                    x.data(),
                                                    n_tok}));
    assert_same("q", y[0], multiply(backend, q.w(), x, n_tok));
    assert_same("k", y[1], multiply(backend, k.w(), x, n_tok, 2, bias.data(), &before));
    assert_same("v", y[2], multiply(backend, v.w(), x, n_tok));
  }
}

void parts(const Backend& backend) {
  parts_of(backend, 61, 13, 29);
  parts_of(backend, 64, 16, 24);
}

// More tokens than one pass over the weights takes.
void many_tokens(const Backend& backend) {
  for (WeightType type : {WeightType::kQ8_0, WeightType::kBF16}) {
    const uint32_t n_tok = 1100, n_cols = 64, n_rows = 8;
    const Matrix m(type, n_rows, n_cols, 7);
    const std::vector<float> x = Random(8).normals(size_t{n_tok} * n_cols);
    assert_close("many tokens", multiply(backend, m.w(), x, n_tok), multiply(reference_backend(), m.w(), x, n_tok),
                 has_f16_prompts(backend) ? kCudaGemmNmse : kIntegerNmse,
                 2 * (has_f16_prompts(backend) ? kCudaGemmError : kIntegerError));
  }
}

// The largest blocks times the largest inputs, all of one sign: integer sums at the limit of 32 bits.
template <class Block>
void fill(const Matrix& m, Block block) {
  for (size_t at = 0; at < m.w().n_rows * m.w().row_bytes; at += sizeof block)
    std::memcpy(m.data() + at, &block, sizeof block);
}

// The block with the largest weights of one sign. A block type without a function here does not compile.
void make_largest(BlockQ8_0& b) { std::memset(&b, 0x80, sizeof b), b.scale = f32_to_f16(0.5f); }
void make_largest(BlockQ4_0& b) { std::memset(&b, 0, sizeof b), b.scale = f32_to_f16(-0.5f); }
void make_largest(BlockQ4_1& b) { std::memset(&b, 0xFF, sizeof b), b.scale = f32_to_f16(0.5f), b.minimum = 0; }
void make_largest(BlockQ5_0& b) { std::memset(&b, 0, sizeof b), b.scale = f32_to_f16(-0.5f); }
void make_largest(BlockQ5_1& b) { std::memset(&b, 0xFF, sizeof b), b.scale = f32_to_f16(0.5f), b.minimum = 0; }
void make_largest(BlockIQ4_NL& b) { std::memset(&b, 0, sizeof b), b.scale = f32_to_f16(-0.5f); }
void make_largest(BlockMXFP4& b) { std::memset(&b, 0x77, sizeof b), b.scale = 127; }
void make_largest(BlockNVFP4& b) {
  std::memset(&b, 0x77, sizeof b);
  std::memset(b.scales, 56, sizeof b.scales);  // 1
}
// The number of the grid's entry with the largest sum of values.
template <class Weight, size_t kN>
uint32_t largest_entry(const uint16_t (&grid)[kN], Weight weight, size_t n_weights) {
  uint32_t best = 0;
  int best_sum = 0;
  for (uint32_t e = 0; e < kN; ++e) {
    int sum = 0;
    for (size_t k = 0; k < n_weights; ++k) sum += weight(grid[e], k);
    if (sum > best_sum) best = e, best_sum = sum;
  }
  return best;
}
void make_largest(BlockIQ2_XXS& b) {
  const uint32_t e = largest_entry(kIq2XxsGrid, grid2_weight, 8);
  b.scale = f32_to_f16(0.5f);
  for (auto& s : b.sub) std::memset(s.q, static_cast<int>(e), sizeof s.q), s.word = 0xF0000000u;
}
void make_largest(BlockIQ2_XS& b) {
  const uint32_t e = largest_entry(kIq2XsGrid, grid2_weight, 8);
  std::memset(&b, 0xFF, sizeof b);
  b.scale = f32_to_f16(0.5f);
  for (size_t i = 0; i < 32; ++i) b.q[i] = static_cast<uint16_t>(e);
}
void make_largest(BlockIQ2_S& b) {
  const uint32_t e = largest_entry(kIq2SGrid, grid2_weight, 8);
  std::memset(&b, 0xFF, sizeof b);
  b.scale = f32_to_f16(0.5f);
  std::memset(b.q, static_cast<int>(e & 255), sizeof b.q);
  std::memset(b.high, static_cast<int>((e >> 8) * 0x55), sizeof b.high);
  std::memset(b.signs, 0, sizeof b.signs);
}
void make_largest(BlockIQ3_XXS& b) {
  const auto weight = [](uint32_t entry, size_t k) { return grid3_weight(kIq3XxsValues, entry, k); };
  std::memset(b.q, static_cast<int>(largest_entry(kIq3XxsGrid, weight, 4)), sizeof b.q);
  b.scale = f32_to_f16(0.5f);
  for (size_t s = 0; s < 8; ++s) b.sub[s] = 0xF0000000u;
}
void make_largest(BlockIQ3_S& b) {
  const auto weight = [](uint32_t entry, size_t k) { return grid3_weight(kIq3SValues, entry, k); };
  const uint32_t e = largest_entry(kIq3SGrid, weight, 4);
  std::memset(&b, 0xFF, sizeof b);
  b.scale = f32_to_f16(0.5f);
  std::memset(b.q, static_cast<int>(e & 255), sizeof b.q);
  std::memset(b.high, e >> 8 != 0 ? 0xFF : 0, sizeof b.high);
  std::memset(b.signs, 0, sizeof b.signs);
}
void make_largest(BlockQ2_K& b) { std::memset(&b, 0xFF, sizeof b), b.scale = f32_to_f16(0.5f), b.min_scale = 0; }
void make_largest(BlockQ3_K& b) { std::memset(&b, 0, sizeof b), b.scale = f32_to_f16(0.5f); }
void make_largest(BlockIQ4_XS& b) { std::memset(&b, 0, sizeof b), b.scale = f32_to_f16(0.5f); }
void make_largest(BlockQ4_K& b) { std::memset(&b, 0xFF, sizeof b), b.scale = f32_to_f16(0.5f), b.min_scale = 0; }
void make_largest(BlockQ5_K& b) { std::memset(&b, 0xFF, sizeof b), b.scale = f32_to_f16(0.5f), b.min_scale = 0; }
void make_largest(BlockQ6_K& b) {
  std::memset(&b, 0, sizeof b);
  std::memset(b.sub_scales, 0x80, sizeof b.sub_scales);
  b.scale = f32_to_f16(0.5f);
}

template <class Block>
void largest_sums_of(const Backend& backend, WeightType type, uint32_t n_rows) {
  if constexpr (Block::kWeights > 1) {  // sums of integers
    constexpr uint32_t kCols = 512;
    Matrix m(type, n_rows, kCols, 1);
    Block block;
    make_largest(block);
    fill(m, block);
    for (uint32_t n_tok : {1u, 2u, 4u, 12u, 33u}) {
      if (!is_variant_of(type, n_tok)) continue;
      for (float sign : {1.0f, -1.0f}) {
        const std::vector<float> x(size_t{n_tok} * kCols, sign * 3.0f);
        const std::vector<float> want = multiply(reference_backend(), m.w(), x, n_tok);
        assert_close(weight_type_info(type).name, multiply(backend, m.w(), x, n_tok), want, 1e-12,
                     1e-6 * double{std::fabs(want[0])});
      }
    }
  }
}

void largest_sums(const Backend& backend) {
  for (uint32_t n_rows : {25u, 24u}) {
#define WEIR_QUANT(Name, text, gguf_id, block_weights, block_bytes) \
  largest_sums_of<Block##Name>(backend, WeightType::k##Name, n_rows);
#include "quant/quants.inc"
#undef WEIR_QUANT
  }
}

// A scale byte that is no number must not turn into a plausible result, and must not affect other rows. Nothing is
// promised of scales in f16: some instruction sets have no conversion that knows of NaN.
template <class Block>
concept HasScaleByte = requires(Block b) {
  requires sizeof b.scale == 1;
};
template <class Block>
void damaged_scale_of(const Backend& backend, WeightType type) {
  if constexpr (Block::kWeights > 1) {
    Block block;
    if constexpr (HasScaleByte<Block>) {
      constexpr uint32_t kCols = 512, kRows = 40, kBad = 7;
      Matrix m(type, kRows, kCols, 23);
      uint8_t* at = m.data() + kBad * m.w().row_bytes + sizeof block;  // the second block of the row
      std::memcpy(&block, at, sizeof block);
      block.scale = 0xFF;
      std::memcpy(at, &block, sizeof block);
      for (uint32_t n_tok : {1u, 2u, 12u}) {
        if (!is_variant_of_driver(type, n_tok)) continue;
        const std::vector<float> y = multiply(backend, m.w(), Random(24).normals(size_t{n_tok} * kCols), n_tok);
        for (uint32_t i = 0; i < n_tok * kRows; ++i) {
          if (std::isnan(y[i]) != (i % kRows == kBad)) fail_msg("%s: row %u", weight_type_info(type).name, i % kRows);
        }
      }
    }
  }
}

void damaged_scale_is_seen(const Backend& backend) {
#define WEIR_QUANT(Name, text, gguf_id, block_weights, block_bytes) \
  damaged_scale_of<Block##Name>(backend, WeightType::k##Name);
#include "quant/quants.inc"
#undef WEIR_QUANT
}

// One input is a thousand times larger than the others of its group. The others lose bits, but the results must stay
// within the bound.
void outliers(const Backend& backend) {
  for (const TypeRow& row : kTypes) {
    const uint32_t n_cols = 768, n_rows = 136;
    const Matrix m(row.type, n_rows, n_cols, 12);
    for (uint32_t n_tok : {1u, 12u}) {
      if (!is_variant_of_driver(row.type, n_tok)) continue;
      std::vector<float> x = Random(13).normals(size_t{n_tok} * n_cols);
      for (size_t i = 77; i < x.size(); i += 256) x[i] = 1000.0f;
      const std::vector<float> want = multiply(reference_backend(), m.w(), x, n_tok);
      // Twice 256 * (1 / 32767)^2 / 12: no input can do worse. Rounding to f16 is relative to each input.
      const bool in_f16 = is_f16_prompt(backend, n_tok);
      assert_close("outliers", multiply(backend, m.w(), x, n_tok), want, in_f16 ? kCudaGemmNmse : 4e-8,
                   in_f16 ? 60 * kCudaGemmError : 0.2);
    }
  }
}

void zeros_give_zeros(const Backend& backend) {
  for (const TypeRow& row : kTypes) {
    const uint32_t n_cols = row.n_cols.back();
    const Matrix m(row.type, 40, n_cols, 14);
    for (uint32_t n_tok : {1u, 12u}) {
      if (!is_variant_of_driver(row.type, n_tok)) continue;
      const std::vector<float> y = multiply(backend, m.w(), std::vector<float>(size_t{n_tok} * n_cols), n_tok);
      assert_true(std::all_of(y.begin(), y.end(), [](float f) { return f == 0.0f; }));
    }
  }
}

// Quantised inputs have a scale: inputs times a power of two far from one give the results times that power, and inputs
// too small to be divided by give next to nothing.
void far_from_one(const Backend& backend) {
  for (const TypeRow& row : kTypes) {
    if (!is_variant_of_driver(row.type, 1)) continue;
    const uint32_t n_cols = row.n_cols.back(), n_rows = 40;
    const Matrix m(row.type, n_rows, n_cols, 21);
    const std::vector<float> x = Random(22).normals(n_cols), want = multiply(reference_backend(), m.w(), x, 1);
    for (float factor : {0x1p-90f, 0x1p90f}) {
      std::vector<float> far = x;
      for (float& v : far) v *= factor;
      std::vector<float> y = multiply(backend, m.w(), far, 1);
      for (float& v : y) v /= factor;
      assert_close("far from one", y, want, row.max_nmse, row.max_error);
    }
    std::vector<float> tiny(n_cols);
    for (size_t i = 0; i < tiny.size(); i += 3) tiny[i] = 1e-35f;
    for (float v : multiply(backend, m.w(), tiny, 1)) {
      if (!(std::fabs(v) < 2e-31f)) fail_msg("%s: %g from inputs of 1e-35", weight_type_info(row.type).name, v);
    }
  }
}

// A NaN or an infinity among the inputs must not turn into a plausible number, and must not affect other tokens.
void not_a_number_is_seen(const Backend& backend) {
  for (const TypeRow& row : kTypes) {
    const uint32_t n_cols = row.n_cols.back(), n_rows = 40;
    const Matrix m(row.type, n_rows, n_cols, 15);
    for (float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      for (uint32_t n_tok : {2u, 12u}) {
        if (!is_variant_of_driver(row.type, n_tok)) continue;
        std::vector<float> x = Random(16).normals(size_t{n_tok} * n_cols);
        x[n_cols + n_cols / 2] = bad;
        const std::vector<float> y = multiply(backend, m.w(), x, n_tok);
        for (size_t i = 0; i < n_rows; ++i) {
          if (!std::isfinite(y[i]) || std::isfinite(y[n_rows + i]))
            fail_msg("%s: row %zu", weight_type_info(row.type).name, i);
        }
      }
    }
  }
}

// [1 2; 3 4; 5 6] times (1, 10) and (2, 0).
void golden(const Backend& backend) {
  const float w[6] = {1, 2, 3, 4, 5, 6};
  const Weight weight = {reinterpret_cast<const uint8_t*>(w), WeightType::kF32, 3, 2, 8};
  assert_same("golden", multiply(backend, weight, {1, 10, 2, 0}, 2), {21, 43, 65, 2, 6, 10});
}

void too_little_scratch_is_an_error(const Backend& backend) {
  constexpr uint32_t kTok = 9;  // up to eight need no scratch on the GPU
  const Matrix m(WeightType::kQ8_0, 8, 256, 1);
  const std::vector<float> x(kTok * 256);
  std::vector<float> y(kTok * 8);
  Machine machine(backend, matmul_shapes(256, kTok, 1));
  if (machine.cx().scratch_bytes == 0) skip();  // Vulkan without cooperative matrices
  OpContext cx = machine.cx();
  cx.scratch_bytes = 64;
  assert_int_equal(backend.ops.matmul(cx, {{{m.w(), nullptr, y.data(), false}}, 1, x.data(), kTok}).code(),
                   WEIR_ERR_INTERNAL);
}

void embed_decodes_rows(const Backend& backend) {
  for (const TypeRow& row : kTypes) {
    const uint32_t n_cols = row.n_cols.back();
    const Matrix m(row.type, 50, n_cols, 17);
    const int32_t tokens[] = {49, 0, 7, 7};
    std::vector<float> got(4 * n_cols, NAN), want(4 * n_cols);
    Machine machine(backend, matmul_shapes(n_cols, 4, 2));
    machine.check(backend.ops.embed(machine.cx(), {got.data(), m.w(), tokens, 4}));
    for (size_t t = 0; t < 4; ++t) {
      weight_type_info(row.type).decode(m.data() + static_cast<size_t>(tokens[t]) * m.w().row_bytes, &want[t * n_cols],
                                        n_cols);
    }
    assert_same(weight_type_info(row.type).name, got, want);
  }
}

void embed_scales_rows(const Backend& backend) {
  for (const TypeRow& row : kTypes) {
    const uint32_t n_cols = row.n_cols.back();
    const Matrix m(row.type, 5, n_cols, 18);
    const int32_t tokens[] = {4, 1};
    std::vector<float> got(2 * n_cols, NAN), want(2 * n_cols);
    Machine machine(backend, matmul_shapes(n_cols, 2, 2));
    machine.check(backend.ops.embed(machine.cx(), {got.data(), m.w(), tokens, 2, 25.3f}));
    machine.check(backend.ops.embed(machine.cx(), {want.data(), m.w(), tokens, 2}));
    for (float& x : want) x *= 25.3f;
    assert_same(weight_type_info(row.type).name, got, want);
  }
}

std::vector<BackendTest> tests() {
  std::vector<BackendTest> list = {{"matmul__golden", golden},
                                   {"matmul__parts", parts},
                                   {"matmul__many_tokens", many_tokens},
                                   {"matmul__largest_sums", largest_sums},
                                   {"matmul__damaged_scale_is_seen", damaged_scale_is_seen},
                                   {"matmul__outliers", outliers},
                                   {"matmul__zeros_give_zeros", zeros_give_zeros},
                                   {"matmul__far_from_one", far_from_one},
                                   {"matmul__not_a_number_is_seen", not_a_number_is_seen},
                                   {"matmul__too_little_scratch_is_an_error", too_little_scratch_is_an_error},
                                   {"embed__decodes_rows", embed_decodes_rows},
                                   {"embed__scales_rows", embed_scales_rows}};
  for (const TypeRow& row : kTypes) {
    const std::string type = weight_type_info(row.type).name;
    list.push_back({"matmul__" + type + "_matches_reference", [&row](const Backend& b) { matches_reference(b, row); }});
    list.push_back({"matmul__" + type + "_does_not_depend_on_company",
                    [&row](const Backend& b) { results_do_not_depend_on_company(b, row); }});
    list.push_back({"matmul__" + type + "_few_tokens_match_single_ones",
                    [&row](const Backend& b) { few_tokens_match_single_ones(b, row); }});
    list.push_back({"matmul__" + type + "_accumulate_and_bias", [&row](const Backend& b) {
                      for (uint32_t n_rows : {37u, 40u}) accumulate_and_bias(b, row, n_rows);
                    }});
  }
  return list;
}

}  // namespace
}  // namespace weir::test

int main() {
  using namespace weir::test;
  return run_group("ops/matmul", {}, tests());
}
