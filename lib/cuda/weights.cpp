// Takes the blocks of quantised matrices apart into aligned planes.
#include "cuda/weights.h"

#include <cstring>

#include "quant/q4_0.h"
#include "quant/q4_k.h"
#include "quant/q5_k.h"
#include "quant/q6_k.h"
#include "quant/q8_0.h"

namespace weir::cuda {
namespace {

// `b`: the number of the block's first 32 weights in the matrix; `n`: 32-weight blocks of the matrix.
void place(const BlockQ8_0& block, size_t b, size_t n, uint8_t* out) {
  std::memcpy(out + 16 * b, block.q, 16);
  std::memcpy(out + 16 * (n + b), block.q + 16, 16);
  std::memcpy(out + 32 * n + 2 * b, &block.scale, 2);
}

void place(const BlockQ4_0& block, size_t b, size_t n, uint8_t* out) {
  std::memcpy(out + 16 * b, block.q, 16);
  std::memcpy(out + 16 * n + 2 * b, &block.scale, 2);
}

// Nibbles of the eight sub-blocks of a K-quant: in the file one sub-block has the low nibbles of 32 bytes and the next the high ones.
void place_nibbles(const uint8_t* q, size_t b, uint8_t* out) {
  for (size_t s = 0; s < 8; ++s) {
    const uint8_t* from = q + s / 2 * 32;
    const uint32_t shift = s % 2 * 4;
    uint8_t* to = out + 16 * (b + s);
    for (size_t i = 0; i < 16; ++i)
      to[i] = static_cast<uint8_t>((from[i] >> shift & 15) | (from[i + 16] >> shift & 15) << 4);
  }
}

void place(const BlockQ4_K& block, size_t b, size_t n, uint8_t* out) {
  place_nibbles(block.q, b, out);
  std::memcpy(out + 16 * n + 2 * b, &block,
              16);  // b / 8 headers of 16 bytes; scale, min_scale and sub-scales come first
}

void place(const BlockQ5_K& block, size_t b, size_t n, uint8_t* out) {
  place_nibbles(block.q, b, out);
  for (size_t s = 0; s < 8; ++s) {
    uint32_t bits = 0;
    for (uint32_t i = 0; i < 32; ++i) bits |= static_cast<uint32_t>(block.high[i] >> s & 1) << i;
    std::memcpy(out + 16 * n + 4 * (b + s), &bits, 4);
  }
  std::memcpy(out + 20 * n + 2 * b, &block, 16);
}

void place(const BlockQ6_K& block, size_t b, size_t n, uint8_t* out) {
  for (size_t s = 0; s < 8; ++s) {
    const size_t half = s / 4, k = s % 4;
    const uint8_t* low = block.low + 64 * half + 32 * (k % 2);
    const uint8_t* high = block.high + 32 * half;
    uint8_t* to = out + 16 * (b + s);
    const size_t shift = k / 2 * 4;
    for (size_t i = 0; i < 16; ++i)
      to[i] = static_cast<uint8_t>((low[i] >> shift & 15) | (low[i + 16] >> shift & 15) << 4);
    uint32_t words[2] = {};
    for (uint32_t i = 0; i < 32; ++i) {
      const uint32_t bits = high[i] >> (2 * k) & 3u, word = i / 4 % 4, byte = i % 4;
      words[i / 16] |= bits << (8 * byte + 2 * word);
    }
    std::memcpy(out + 16 * n + 8 * (b + s), words, 8);
    std::memcpy(out + 24 * n + 2 * (b + s), block.sub_scales + 2 * s, 2);
  }
  std::memcpy(out + 26 * n + b / 4, &block.scale, 2);
}

template <class Block>
void repack_blocks(const Weight& host, uint32_t first_row, uint32_t end_row, uint8_t* out) {
  const size_t per_row = host.n_cols / Block::kWeights, n = size_t{host.n_rows} * host.n_cols / 32;
  for (uint32_t row = first_row; row < end_row; ++row) {
    const auto* blocks = reinterpret_cast<const Block*>(host.data + row * host.row_bytes);
    for (size_t i = 0; i < per_row; ++i) place(blocks[i], (row * per_row + i) * (Block::kWeights / 32), n, out);
  }
}

}  // namespace

Status check_weight(const Weight& w) {
  if (w.n_cols % 32 == 0) return {};
  return fail(WEIR_ERR_UNSUPPORTED, "a matrix of %u columns: this device needs a multiple of 32", w.n_cols);
}

uint32_t planes(WeightType type, uint32_t bytes[4]) {
  const auto set = [&](uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    bytes[0] = a, bytes[1] = b, bytes[2] = c, bytes[3] = d;
    return b == 0 ? 1u : c == 0 ? 2u : d == 0 ? 3u : 4u;
  };
  switch (type) {
    case WeightType::kQ8_0:
      return set(128, 128, 16, 0);
    case WeightType::kQ4_0:
    case WeightType::kQ4_K:
      return set(128, 16, 0, 0);
    case WeightType::kQ5_K:
      return set(128, 32, 16, 0);
    case WeightType::kQ6_K:
      return set(128, 64, 16, 2);
    case WeightType::kF16:
    case WeightType::kBF16:
      return set(512, 0, 0, 0);
    case WeightType::kF32:
      return set(1024, 0, 0, 0);
  }
  return 0;
}

void repack(const Weight& host, uint32_t first_row, uint32_t end_row, uint8_t* out) {
  switch (host.type) {
    case WeightType::kQ8_0:
      return repack_blocks<BlockQ8_0>(host, first_row, end_row, out);
    case WeightType::kQ4_0:
      return repack_blocks<BlockQ4_0>(host, first_row, end_row, out);
    case WeightType::kQ4_K:
      return repack_blocks<BlockQ4_K>(host, first_row, end_row, out);
    case WeightType::kQ5_K:
      return repack_blocks<BlockQ5_K>(host, first_row, end_row, out);
    case WeightType::kQ6_K:
      return repack_blocks<BlockQ6_K>(host, first_row, end_row, out);
    case WeightType::kF32:
    case WeightType::kF16:
    case WeightType::kBF16:
      std::memcpy(out + first_row * host.row_bytes, host.data + first_row * host.row_bytes,
                  (end_row - first_row) * host.row_bytes);
  }
}

}  // namespace weir::cuda
