// The digest kSketch: every key of a page in 2 bits a channel (docs/algorithms.md, "Digests and their estimates"). Rows
// are rotated by a Hadamard matrix first, which leaves q.k as it is and makes the channels of a row alike, so that four
// evenly spaced levels and one step for the whole row are enough. The rotated query is rounded to 8 bits, so that its
// products with codes are whole numbers: the same on every backend.
//
// A sketch is [words, kPageTokens] u32 and then [kPageTokens] bf16, the scales of the tokens. Word w of a token has
// channels 16 w to 16 w + 15; channel 4 j + i of them is at bit 8 i + 2 j, so that shifted by 2 j and masked with
// 0x03030303 the word's bytes are the codes of four neighbouring channels. Code c stands for scale * (2 c - 3), and
// channels that a head does not have for nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/types.h"

namespace weir {

// The largest estimate, which is that of a page with a key that is not finite, or too large to tell: it is attended.
// Squares of it are finite.
inline constexpr float kSketchMost = 1e15f;
inline constexpr uint32_t kSketchMask = 0x03030303;
// The scales of tokens whose keys are not finite, and of pages that are lost: an estimate of these is NaN.
inline constexpr uint16_t kSketchInfinite = 0x7F80, kSketchLost = 0x7FC0;

// The code of a token's channel.
constexpr uint32_t sketch_code(const uint16_t* sketch, uint32_t token, uint32_t channel) {
  const uint32_t word = channel / kSketchChannels * kPageTokens + token;
  const uint32_t bit = channel % 4 * 8 + channel % kSketchChannels / 4 * 2;
  return sketch[2 * word + bit / 16] >> bit % 16 & 3u;
}

// Half of the distance between levels, in units of the root mean square of a row: the best for normal numbers (Max,
// "Quantizing for Minimum Distortion", 1960, table II). A rotated row is nearly normal.
inline constexpr float kSketchHalfStep = 0.4979f;

// Words of a token.
constexpr uint32_t sketch_words(size_t head_dim) {
  return static_cast<uint32_t>((head_dim + kSketchChannels - 1) / kSketchChannels);
}

// The sketch of the first `len` keys of a page; tokens that are not there count as keys of zeros.
void sketch_page(const PagePart<const uint16_t>& keys, uint32_t len, uint16_t* out);

// A query for sketches.
struct SketchQuery {
  int8_t* codes;  // [words, kSketchChannels]; zeros where the head has no channel
  int32_t sum;    // of the codes
  float factor;   // q.k is about factor * scale * (2 * the products of codes - 3 * sum); NaN: q is not finite
};

// Fills q.codes, sum and factor from x [head_dim], which is rotated in place (add_by_hadamard).
void sketch_query(float* x, size_t head_dim, SketchQuery& q);

// The estimate of a page: the logarithm of the sum over its tokens of exp(scale * q.k), divided by scale. In f64.
float sketch_estimate(const SketchQuery& q, const uint16_t* sketch, size_t head_dim, float scale);

}  // namespace weir
