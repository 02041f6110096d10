// Sketches of pages and queries, defined; see sketch.h.
#include "ops/sketch.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/hadamard.h"
#include "quant/half.h"

namespace weir {
namespace {

// Two times a code minus 3: a level in units of half the distance between levels.
float level(uint32_t code) { return static_cast<float>(2 * static_cast<int32_t>(code) - 3); }

// Codes of one token's rotated key, and its scale: the least squares for these codes. Scales by which <key, stored key>
// is |key|^2 did not choose pages better (docs/papers.md).
uint16_t sketch_key(const float* x, size_t d, uint32_t* words) {
  float square = 0.0f;
  for (size_t i = 0; i < d; ++i) square += x[i] * x[i];
  if (!std::isfinite(square)) return kSketchInfinite;
  const float border = 2.0f * kSketchHalfStep * std::sqrt(square / static_cast<float>(d));
  float along = 0.0f, length = 0.0f;
  for (size_t i = 0; i < d; ++i) {
    const uint32_t code = x[i] < 0.0f ? (x[i] < -border ? 0 : 1) : (x[i] < border ? 2 : 3);
    words[i / kSketchChannels * kPageTokens] |= code << (i % 4 * 8 + i % kSketchChannels / 4 * 2);
    along += x[i] * level(code);
    length += level(code) * level(code);
  }
  return f32_to_bf16(along / length / static_cast<float>(hadamard_block(d)));
}

}  // namespace

void sketch_page(const PagePart<const uint16_t>& keys, uint32_t len, uint16_t* out) {
  const size_t head_dim = keys.head_dim;
  float row[kMaxHeadDim];
  uint32_t words[kMaxHeadDim / kSketchChannels * kPageTokens] = {};
  const size_t n_words = sketch_words(head_dim) * size_t{kPageTokens};
  uint16_t* scales = out + n_words * 2;
  for (uint32_t t = 0; t < kPageTokens; ++t) {
    for (size_t i = 0; i < head_dim; ++i) row[i] = t < len ? load_element(keys, t, i) : 0.0f;
    add_by_hadamard(row, head_dim);
    scales[t] = sketch_key(row, head_dim, words + t);
  }
  std::memcpy(out, words, n_words * sizeof(uint32_t));
}

void sketch_query(float* x, size_t head_dim, SketchQuery& q) {
  add_by_hadamard(x, head_dim);
  float most = 0.0f;
  bool finite = true;
  for (size_t i = 0; i < head_dim; ++i) {
    most = std::max(most, std::fabs(x[i]));
    finite = finite && std::isfinite(x[i]);
  }
  std::fill_n(q.codes, size_t{sketch_words(head_dim)} * kSketchChannels, int8_t{0});
  q.sum = 0;
  q.factor = finite ? most / 127.0f : NAN;
  const float inverse = 127.0f / most;
  if (!finite || !std::isfinite(inverse)) return;
  for (size_t i = 0; i < head_dim; ++i) {
    q.codes[i] = static_cast<int8_t>(std::nearbyint(x[i] * inverse));
    q.sum += q.codes[i];
  }
}

float sketch_estimate(const SketchQuery& q, const uint16_t* sketch, size_t head_dim, float scale) {
  const uint32_t n = sketch_words(head_dim) * kSketchChannels;
  const uint16_t* scales = sketch + size_t{n / kSketchChannels} * kPageTokens * 2;
  double logits[kPageTokens], high = -INFINITY, sum = 0.0;
  bool is_infinite = false;
  for (uint32_t t = 0; t < kPageTokens; ++t) {
    if (scales[t] == kSketchLost) return NAN;
    is_infinite = is_infinite || scales[t] == kSketchInfinite;
    int32_t product = -3 * q.sum;
    for (uint32_t i = 0; i < n; ++i) product += 2 * q.codes[i] * static_cast<int32_t>(sketch_code(sketch, t, i));
    logits[t] = double{scale} * double{q.factor} * double{bf16_to_f32(scales[t])} * static_cast<double>(product);
    high = std::max(high, logits[t]);
  }
  if (is_infinite) return kSketchMost;
  for (double x : logits) sum += std::exp(x - high);
  const double estimate = (high + std::log(sum)) / double{scale};
  return estimate > double{kSketchMost} ? kSketchMost : static_cast<float>(estimate);
}

}  // namespace weir
