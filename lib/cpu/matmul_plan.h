// How a matrix op is divided into tasks, and the scratch that they use: between matmul.cpp (the ops) and the two
// implementations, gemv.cpp and gemm.cpp.
//
// Scratch: first what all workers share (the activations, quantised or packed), then one part per worker. Tasks write
// disjoint outputs and compute each output in a fixed order, so results do not depend on the number of threads.
#pragma once

#include <algorithm>
#include <cstddef>

#include "cpu/matmul_kernels.h"
#include "ops/types.h"
#include "quant/weight_type.h"

namespace weir::cpu {

// Calls with at most this many tokens use the GEMV. The number comes from the GEMM's granularity, not from a measured
// crossover: with 8 tokens half of the lanes of a 16-token AVX-512 vector are padding.
inline constexpr size_t kGemvTokens = 8;
// Tokens that the GEMM handles in one pass over the weights; more tokens take several passes. Decoding a tile costs 1 /
// 512 of the multiplications of a pass, and the packed activations of a pass stay below 16 MB for the longest rows in
// use.
inline constexpr size_t kPassTokens = 512;
// The f32 path packs twice the bytes.
inline constexpr size_t kPassTokensFloat = 256;
// Integer panels with sums per 16 columns: as many tokens as fit into the scratch of kPassTokensFloat.
inline constexpr size_t kPassTokensHalfSums = 416;
// Maximum number of rows of a GEMV task; bounds the scratch of its results.
inline constexpr size_t kGemvRows = 512;

struct ProductPart {
  Weight w;
  const float* bias;
  float* y;
  bool accumulate;
};

// One call of an op: parts that share the input x. With `glu`, parts 0 and 1 are gate and up and share y, which
// `activate` computes from both, after their biases are added.
struct Product {
  const float* x;
  size_t n_cols;
  size_t n_tok;
  size_t n_parts;
  ProductPart part[3];
  bool glu;
  GluFn activate;
};

constexpr size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

// Hands out consecutive, 64-byte aligned ranges of the scratch.
class Carver {
 public:
  explicit Carver(std::byte* at) : at_(at) {}
  template <class T>
  T* take(size_t n) {
    T* piece = reinterpret_cast<T*>(at_);
    at_ += round_up(n * sizeof(T), 64);
    return piece;
  }

 private:
  std::byte* at_;
};

// q, scale and sums of the quantised activations. Rounded up to 64 bytes, because sums are read in whole vectors.
constexpr size_t gemv_shared_bytes(size_t groups, size_t n_tok) {
  return round_up(n_tok * groups * kGroup * sizeof(int16_t), 64) + round_up(n_tok * groups * sizeof(float), 64) +
         round_up(n_tok * groups * kSubs * sizeof(float), 64) + round_up(n_tok * groups * kHalves * sizeof(float), 64);
}
// Results of a task, for gate and up.
constexpr size_t gemv_worker_bytes() { return 2 * kGemvRows * kGemvTokens * sizeof(float); }

// Packed activations: integer and f32 panels never exist at the same time. A panel pads each group by less than 64
// bytes, which 16 bytes per token cover, as it has at least 4 tokens. A pass is padded to a whole panel of at most 32
// tokens.
constexpr size_t gemm_shared_bytes(size_t groups, size_t n_tok) {
  const size_t integer = round_up(std::min(n_tok, kPassTokens), 32) * (packed_bytes(64, false) / 64 + 16);
  const size_t floats = round_up(std::min(n_tok, kPassTokensFloat), 32) * packed_float_bytes(1);
  return round_up(groups * std::max(integer, floats), 64);
}
static_assert(kPassTokensHalfSums * (packed_bytes(64, true) / 64 + 16) <= kPassTokensFloat * packed_float_bytes(1) &&
                  packed_bytes(64, true) / 64 + 16 <= packed_float_bytes(1),
              "half sums need no more scratch than f32 panels of as many tokens, or of kPassTokensFloat");
// A tile and the sums.
constexpr size_t gemm_worker_bytes(size_t n_tok) {
  return kTileRows * (kGroup * (sizeof(int16_t) + sizeof(float)) + (kSubs + kHalves) * sizeof(float)) +
         kTileRows * round_up(std::min(n_tok, kPassTokens), 32) * sizeof(float);
}

void run_gemv(OpContext& cx, const Product& p);
void run_gemm(OpContext& cx, const Product& p);
// The one of the two that suits the number of tokens.
void run_product(OpContext& cx, const Product& p);

}  // namespace weir::cpu
