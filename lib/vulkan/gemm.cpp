#include "vulkan/gemm.h"

#include <algorithm>

#include "core/memory.h"
#include "device/kernels/gemv.h"
#include "ops/glu_matmul.h"
#include "ops/matmul.h"
#include "vulkan/ops_sizes.h"

namespace weir::vulkan {
namespace {

// Decoded weights at a time, in f16: the largest matrices of models of 8 billion weights, as a rule.
constexpr uint64_t kDecodedBytes = 128u << 20;
constexpr uint64_t kHalf = 2;  // bytes

// What is multiplied, and what becomes of the product.
struct Product {
  const MatmulPart* part;
  const float* gates;
  uint32_t n_tok;
  uint32_t result;  // kGemm...
  Gate activation;
};

uint32_t result_of(const MatmulPart& part) { return part.accumulate ? kGemmAdd : kGemmStore; }

// -------------------------------------------------------------------------------------------------------- in f32

// Specialisation: tiles of 16, 32 or 64 tokens.
uint32_t width_of(uint32_t n_tok) { return n_tok <= kGemmTokens ? 2 : n_tok <= 2 * kGemmTokens ? 4 : 8; }

// Tokens [first, first + n_tok).
Status multiply_f32(const Product& p, const float* x, uint32_t first, uint32_t n_tok) {
  const Weight& w = p.part->w;
  const uint32_t width = width_of(p.n_tok), tokens = kGemmTokens * width / 2;
  Touches t;
  const GemmPush push = {.y = t.writes(p.part->y + uint64_t{first} * w.n_rows, float_bytes(uint64_t{n_tok} * w.n_rows)),
                         .x = t.reads(x + uint64_t{first} * w.n_cols, float_bytes(uint64_t{n_tok} * w.n_cols)),
                         .w = t.reads(w.data, weight_bytes(w)),
                         .bias = t.reads(p.part->bias, float_bytes(w.n_rows)),
                         .gates = t.reads(p.gates == nullptr ? nullptr : p.gates + first, float_bytes(n_tok)),
                         .scales = {0, 0},
                         .n = blocks_of(w),
                         .n_cols = w.n_cols,
                         .n_rows = w.n_rows,
                         .n_tok = n_tok,
                         .stride = w.n_rows,
                         .result = p.result,
                         .activation = static_cast<uint>(p.activation)};
  const uint32_t across = (n_tok + tokens - 1) / tokens, down = (w.n_rows + kGemmRows - 1) / kGemmRows;
  return context().dispatch(Kernel::kGemm, w.type, {width}, push, t, {across, std::min(down, kMaxGroups)});
}

Status multiply_f32(const Product& p, const float* x) {
  const Weight& w = p.part->w;
  const uint32_t most = rows_at_once(2 * uint64_t{w.n_rows} * w.n_cols, kGemmTokens * width_of(p.n_tok) / 2);
  for (uint32_t first = 0, n = 0; first < p.n_tok; first += n) {
    n = std::min(most, p.n_tok - first);
    WEIR_TRY(multiply_f32(p, x, first, n));
  }
  return {};
}

// ------------------------------------------------------------------------------------------ by cooperative matrices

struct Scratch {
  std::byte* x;        // [n_tok, n_cols] f16
  float* scales;       // [n_tok]
  std::byte* weights;  // kDecodedBytes
  uint64_t bytes;
};

Scratch lay_out(std::byte* base, uint64_t n_tok, uint64_t n_cols) {
  Scratch s = {};
  uint64_t at = 0;
  const auto take = [&](uint64_t n) {
    std::byte* const p = base + at;
    at = align_up(at + n, Memory::kAlignment);
    return p;
  };
  s.x = take(n_tok * n_cols * kHalf);
  s.scales = reinterpret_cast<float*>(take(float_bytes(n_tok)));
  s.weights = take(kDecodedBytes);
  s.bytes = at;
  return s;
}

// Rows [first, first + n) of a matrix, decoded at `weights`.
struct Slice {
  Product product;
  uint32_t first, n;
  std::byte* weights;
};

Status pack_rows(const Scratch& s, const float* x, uint32_t n_tok, uint32_t n_cols) {
  Touches t;
  const GemmPackPush push = {t.writes(s.x, uint64_t{n_tok} * n_cols * kHalf), t.writes(s.scales, float_bytes(n_tok)),
                             t.reads(x, float_bytes(uint64_t{n_tok} * n_cols)), n_tok, n_cols / 8};
  return context().dispatch(Kernel::kGemmPack, WeightType::kF32, {}, push, t, {std::min(n_tok, kMaxGroups)});
}

Status decode(const Slice& s) {
  const Weight& w = s.product.part->w;
  const uint32_t row_blocks = row_blocks_of(w), n_blocks = s.n * row_blocks;
  Touches t;
  const GemmDecodePush push = {t.writes(s.weights, uint64_t{s.n} * w.n_cols * kHalf), t.reads(w.data, weight_bytes(w)),
                               blocks_of(w), s.first * row_blocks, n_blocks};
  const uint32_t groups = (4 * n_blocks + kInvocations - 1) / kInvocations;
  return context().dispatch(Kernel::kGemmDecode, w.type, {}, push, t, {std::min(groups, kMaxGroups)});
}

uint32_t tiles_of(const Slice& s, const MatrixTile& tile) {
  return ((s.product.n_tok + tile.tokens - 1) / tile.tokens) * ((s.n + tile.rows - 1) / tile.rows);
}

// The largest tile that gives every multiprocessor of a large device one; few tokens take no larger one than they fill.
uint32_t best_tile(const Slice& s) {
  constexpr uint32_t kEnoughTiles = 128;
  const MatrixTiles& tiles = context().device.tiles;
  uint32_t i = static_cast<uint32_t>(tiles.size()) - 1;
  while (i > 0 && (tiles_of(s, tiles[i]) < kEnoughTiles || tiles[i].tokens >= 2 * s.product.n_tok)) --i;
  return i;
}

Status multiply(const Scratch& scratch, const Slice& s) {
  const MatmulPart& part = *s.product.part;
  const uint32_t n_tok = s.product.n_tok, n_rows = part.w.n_rows, n_cols = part.w.n_cols, which = best_tile(s);
  Touches t;
  // The bytes of y between the first and the last element; its rows are longer than the slice.
  const uint64_t y_floats = uint64_t{n_tok - 1} * n_rows + s.n;
  const GemmPush push = {.y = t.writes(part.y + s.first, float_bytes(y_floats)),
                         .x = t.reads(scratch.x, uint64_t{n_tok} * n_cols * kHalf),
                         .w = t.reads(s.weights, uint64_t{s.n} * n_cols * kHalf),
                         .bias = t.reads(part.bias == nullptr ? nullptr : part.bias + s.first, float_bytes(s.n)),
                         .gates = t.reads(s.product.gates, float_bytes(n_tok)),
                         .scales = t.reads(scratch.scales, float_bytes(n_tok)),
                         .n = 0,
                         .n_cols = n_cols,
                         .n_rows = s.n,
                         .n_tok = n_tok,
                         .stride = n_rows,
                         .result = s.product.result,
                         .activation = static_cast<uint>(s.product.activation)};
  const MatrixTile& tile = context().device.tiles[which];
  const Variant variant = {.invocations = tile.invocations, .tile = which};
  return context().dispatch(Kernel::kGemmCoop, WeightType::kF32, variant, push, t,
                            {(n_tok + tile.tokens - 1) / tile.tokens, (s.n + tile.rows - 1) / tile.rows});
}

// Products with one x. As many matrices as there is room for are decoded before they are multiplied, so that the device
// waits seldom.
Status multiply_all(const Scratch& scratch, const Product* products, uint32_t n) {
  constexpr uint32_t kMaxSlices = 3;
  Slice slices[kMaxSlices];
  uint32_t n_slices = 0;
  uint64_t used = 0;
  const auto flush = [&]() -> Status {
    for (uint32_t i = 0; i < n_slices; ++i) WEIR_TRY(decode(slices[i]));
    for (uint32_t i = 0; i < n_slices; ++i) WEIR_TRY(multiply(scratch, slices[i]));
    n_slices = 0;
    used = 0;
    return {};
  };
  for (uint32_t i = 0; i < n; ++i) {
    const Weight& w = products[i].part->w;
    const uint64_t row = uint64_t{w.n_cols} * kHalf;
    const auto most = static_cast<uint32_t>(std::min<uint64_t>(kDecodedBytes / row, kMaxGroups));
    for (uint32_t first = 0, rows = 0; first < w.n_rows; first += rows) {
      rows = std::min(most, w.n_rows - first);
      if (n_slices == kMaxSlices || used + rows * row > kDecodedBytes) WEIR_TRY(flush());
      slices[n_slices++] = {products[i], first, rows, scratch.weights + used};
      used += align_up(rows * row, Memory::kAlignment);
    }
  }
  return flush();
}

Status prepare(const OpContext& cx, const float* x, uint32_t n_tok, uint32_t n_cols, Scratch& s) {
  s = lay_out(cx.scratch, n_tok, n_cols);
  if (s.bytes > cx.scratch_bytes)
    return fail(WEIR_ERR_INTERNAL, "Vulkan: a product of %u rows: too little scratch memory", n_tok);
  return pack_rows(s, x, n_tok, n_cols);
}

}  // namespace

uint64_t gemm_scratch_bytes(const OpShapes& shapes) {
  const bool needs = context().device.matrices.are_there() && shapes.max_tok > kMaxColumns;
  return needs ? lay_out(nullptr, shapes.max_tok, shapes.max_cols).bytes : 0;
}

Status gemm_f32(const MatmulPart& part, const float* x, uint32_t n_tok) {
  return multiply_f32({&part, nullptr, n_tok, result_of(part), Gate::kSilu}, x);
}

Status gemm(OpContext& cx, const MatmulArgs& a, const float* gates) {
  Product products[3];
  for (uint32_t i = 0; i < a.n_parts; ++i)
    products[i] = {&a.part[i], gates, a.n_tok, result_of(a.part[i]), Gate::kSilu};
  if (!context().device.matrices.are_there()) {
    for (uint32_t i = 0; i < a.n_parts; ++i) WEIR_TRY(multiply_f32(products[i], a.x));
    return {};
  }
  Scratch s;
  WEIR_TRY(prepare(cx, a.x, a.n_tok, a.part[0].w.n_cols, s));
  return multiply_all(s, products, a.n_parts);
}

// The up matrix first: its product waits in y for the gate.
Status gemm_glu(OpContext& cx, const GluMatmulArgs& a) {
  const MatmulPart up = {a.up, a.up_bias, a.y, false}, gate = {a.gate, a.gate_bias, a.y, false};
  const Product products[2] = {{&up, nullptr, a.n_tok, kGemmStore, Gate::kSilu},
                               {&gate, nullptr, a.n_tok, kGemmGate, a.activation}};
  if (!context().device.matrices.are_there()) {
    for (const Product& p : products) WEIR_TRY(multiply_f32(p, a.x));
    return {};
  }
  Scratch s;
  WEIR_TRY(prepare(cx, a.x, a.n_tok, a.gate.n_cols, s));
  return multiply_all(s, products, 2);
}

}  // namespace weir::vulkan
