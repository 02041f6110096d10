// The interface between the matrix ops and the vector code: tables of kernels, selected once per call by Highway's
// dispatch. Everything here is plain C++; the vector code is in weight_kernels-inl.h (per weight type) and
// act_kernels.cpp (activations and tiles).
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/weight_type.h"

namespace weir::cpu {

// Columns that share one scale of the quantised activations, and the step of the GEMM along columns: a whole
// super-block of the K types.
inline constexpr size_t kGroup = 256;
// Columns of a quantised block. The sums of activations are kept per such block, and per half of one for the types with
// a minimum per 16 weights.
inline constexpr size_t kSub = 32;
inline constexpr size_t kSubs = kGroup / kSub;
inline constexpr size_t kHalf = kSub / 2;
inline constexpr size_t kHalves = kGroup / kHalf;

constexpr size_t n_groups(size_t n_cols) { return (n_cols + kGroup - 1) / kGroup; }

// Activations of the GEMV, as f32 and as 16-bit integers: x = scale * q to within scale / 2. Arrays per token, one
// after another.
struct Activations {
  const float* x = nullptr;   // [n_tok, n_cols]
  int16_t* q = nullptr;       // [n_tok, groups * kGroup], zero beyond n_cols
  float* scale = nullptr;     // [n_tok, groups]
  float* sum = nullptr;       // [n_tok, groups, kSubs] scale * (sum of 32 q); filled on request only
  float* half_sum = nullptr;  // [n_tok, groups, kHalves] scale * (sum of 16 q); filled on request only
};

// out[t * out_stride + r] = row r of the matrix times token t.
struct GemvCall {
  const uint8_t* rows;
  size_t row_bytes;
  size_t n_rows;
  size_t n_cols;
  size_t n_tok;
  Activations act;
  float* out;
  size_t out_stride;
};

// Decoded weights of up to kTileRows rows in one group of columns. An integer weight is scale * q - min. The scale is
// that of the group (element 0) or one per 32 columns; the minimum is one per 32 or 16 columns. TileKind says which.
struct Tile {
  int16_t* q;    // [kTileRows, kGroup]
  float* scale;  // [kTileRows, kSubs]
  float* min;    // [kTileRows, kHalves]
  float* f;      // [kTileRows, kGroup]: the weights of an f32 tile
};
inline constexpr size_t kTileRows = 96;
// The rows of a tile are padded to a multiple of this; the kernels' register blocks of 4, 6, 8 and 12 rows divide it.
inline constexpr size_t kTileRowStep = 24;

struct DecodeCall {
  const uint8_t* rows;  // first row of the tile, first column
  size_t row_bytes;
  size_t n_rows;
  size_t group;   // first column = group * kGroup
  size_t n_cols;  // of the group
};

// C [tile rows, panel tokens] += tile * X of one panel and one group.
struct MultiplyCall {
  const Tile* tile;
  size_t n_rows;       // a multiple of kTileRowStep
  const std::byte* x;  // packed panel
  size_t n_cols;       // of the group
  size_t n_vectors;    // vectors of tokens in the panel
  float* c;
  // Encoded weights of the next group to prefetch meanwhile: next_bytes (0: nothing) of every next_every-th row from
  // next_first on, up to next_rows. The panels of a pass share these rows, so that none of them waits for memory.
  const uint8_t* next;
  size_t next_stride, next_rows, next_bytes, next_first, next_every;
};
using MultiplyFn = void (*)(const MultiplyCall&);
// gate[i] = activation(gate[i]) * up[i].
using GluFn = void (*)(float* gate, const float* up, size_t n);

// How the tile of a weight type is multiplied.
enum class TileKind : uint8_t {
  kFloat,             // Tile::f
  kSubScales,         // Tile::q with one scale per 32 columns, no minimum
  kSubMinima,         // the same with minima
  kGroupScale16,      // one scale, an i32 can sum 16 products, no minimum
  kGroupScale64,      // the same with 64 products
  kGroupMinima32,     // one scale, an i32 can sum 32 products, minima
  kGroupMinima64,     // the same with 64 products
  kGroupHalfMinima64  // the same with a minimum per 16 columns
};
inline constexpr size_t kTileKinds = 8;

// Packs groups [first_group, end_group) of the tokens of one panel.
struct PackCall {
  const float* x;  // the panel's first token, rows of n_cols
  size_t n_tok;
  size_t n_vectors;  // vectors of tokens in the panel
  size_t n_cols;
  size_t first_group, end_group;
  bool half_sums;  // integer panels: also the sums per 16 columns
  std::byte* out;  // group 0 of the panel
};

struct WeightKernels {
  TileKind kind;        // kFloat: the GEMV reads act.x; else act.q
  bool uses_sums;       // the GEMV and the tile need the activations' sums per 32 columns
  bool uses_half_sums;  // the same per 16 columns
  void (*gemv)(const GemvCall&);
  void (*decode)(const DecodeCall&, Tile&);        // fills q, scale, min; null for kFloat
  void (*decode_float)(const DecodeCall&, Tile&);  // fills f
};

// Kernels that do not depend on the weight type: quantisation, packing, tile products, epilogue. A panel is
// `panel_vectors` vectors of tokens.
struct ActKernels {
  int64_t target;        // HWY_* bit
  bool has_gemm;         // false: only the GEMV
  bool integer_gemm;     // multiply integer tiles; otherwise decode to f32
  size_t vector_tokens;  // tokens in one vector
  size_t panel_vectors;  // vectors of a full panel
  // Fills q, scale, and sum and half_sum unless null, of one token.
  void (*quantize)(const float* x, size_t n_cols, int16_t* q, float* scale, float* sum, float* half_sum);
  void (*pack)(const PackCall&);  // null unless integer_gemm
  void (*pack_float)(const PackCall&);
  MultiplyFn multiply[kTileKinds];  // by TileKind; all but kFloat are null unless integer_gemm
  // y[t * ld + r] (+)= c[r * stride + t] + bias[r].
  void (*store)(const float* c, size_t stride, size_t n_rows, size_t n_tok, const float* bias, bool accumulate,
                float* y, size_t ld);
  GluFn glu[4];  // by Gate
};

const ActKernels& act_kernels();
#define WEIR_QUANT(Name, text, gguf_id, block_weights, block_bytes) const WeightKernels& weight_kernels_##Name();
#include "quant/quants.inc"
#undef WEIR_QUANT
const WeightKernels& weight_kernels(WeightType type);

// Bytes of one group of a packed panel of `tokens` tokens (vectors * vector_tokens).
// i16 [kGroup / 2, tokens, 2], f32 scale [tokens], f32 sum [kSubs, tokens]; with half sums f32 [kHalves, tokens].
constexpr size_t packed_bytes(size_t tokens, bool half_sums) {
  const size_t n_floats = 1 + kSubs + (half_sums ? kHalves : 0);
  return (tokens * (kGroup * sizeof(int16_t) + n_floats * sizeof(float)) + 63) / 64 * 64;
}
constexpr size_t packed_float_bytes(size_t tokens) { return tokens * kGroup * sizeof(float); }

}  // namespace weir::cpu
