// How a matrix product is cut into tasks and what scratch they use; between matmul.cpp (the ops), gemv.cpp and gemm.cpp (the two ways).
//
// Scratch: first what all workers share (the activations, quantised or packed), then one part per worker. Tasks own disjoint outputs and form
// each of them in a fixed order, so results do not depend on the number of threads.
#pragma once

#include <algorithm>
#include <cstddef>

#include "cpu/matmul_kernels.h"
#include "ops/ops.h"

namespace weir::cpu {

// Up to this many tokens the GEMV is used. TODO measured.
inline constexpr size_t kGemvTokens = 8;
// Tokens that the GEMM handles in one pass over the weights; more are taken in several passes. Decoding the tiles costs 1 / 512 of a pass's
// products, and the packed activations of a pass stay below 16 MB for the longest rows in use.
inline constexpr size_t kPassTokens = 512;
// The f32 path packs twice the bytes.
inline constexpr size_t kPassTokensFloat = 256;
// Rows of a GEMV task at most; bounds its results' scratch.
inline constexpr size_t kGemvRows = 512;

struct ProductPart {
  Weight w;
  const float* bias;
  float* y;
  bool accumulate;
};

// One call of an op: parts over the same x; with `glu`, parts 0 and 1 are gate and up and share y.
struct Product {
  const float* x;
  size_t n_cols;
  size_t n_tok;
  size_t n_parts;
  ProductPart part[3];
  bool glu;
};

constexpr size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

// Hands out consecutive, 64-byte aligned pieces of the scratch.
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

// q, scale, sum of the quantised activations. The 8 floats at the end: sums are read in whole vectors.
constexpr size_t gemv_shared_bytes(size_t groups, size_t n_tok) {
  return round_up(n_tok * groups * kGroup * sizeof(int16_t), 64) + round_up(n_tok * groups * sizeof(float), 64) +
         round_up(n_tok * groups * kSubs * sizeof(float), 64);
}
// Results of a task, of gate and up.
constexpr size_t gemv_worker_bytes() { return 2 * kGemvRows * kGemvTokens * sizeof(float); }

// Packed activations: integer and f32 panels are never alive together. A panel's padding is below 64 bytes in 4 tokens and one group, and a
// pass is padded to a whole panel of at most 32 tokens.
constexpr size_t gemm_shared_bytes(size_t groups, size_t n_tok) {
  const size_t integer = round_up(std::min(n_tok, kPassTokens), 32) * (packed_bytes(64) / 64 + 16);
  const size_t floats = round_up(std::min(n_tok, kPassTokensFloat), 32) * packed_float_bytes(1);
  return round_up(groups * std::max(integer, floats), 64);
}
// Tile and sums.
constexpr size_t gemm_worker_bytes(size_t n_tok) {
  return kTileRows * (kGroup * (sizeof(int16_t) + sizeof(float)) + 2 * kSubs * sizeof(float)) +
         kTileRows * round_up(std::min(n_tok, kPassTokens), 32) * sizeof(float);
}

void run_gemv(OpContext& cx, const Product& p);
void run_gemm(OpContext& cx, const Product& p);

}  // namespace weir::cpu
