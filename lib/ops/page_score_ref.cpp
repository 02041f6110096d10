// Estimates of q.k over pages from their digests, defined. Sums are in f64: the exact value, rounded once.
// Papers: Tang et al., "Quest", arXiv:2406.10774, sec. 3.2 (kMinMax, a true bound); Chen et al., "ArkVale", NeurIPS
// 2024, sec. 5.2 (cuboid, sphere, centroid).
#include <algorithm>
#include <cmath>

#include "ops/page_score.h"
#include "ops/sketch.h"
#include "quant/half.h"

namespace weir::ref {
namespace {

double estimate(const PageScoreArgs& a, const float* q, const uint16_t* digest) {
  const size_t d = a.kv.head_dim;
  double sum = 0.0, square = 0.0;
  for (size_t i = 0; i < d; ++i) {
    const double x = q[i], first = bf16_to_f32(digest[i]);
    switch (a.kv.digest) {
      case DigestKind::kMinMax:
      case DigestKind::kCuboidMean:
        sum += std::max(x * first, x * double{bf16_to_f32(digest[d + i])});
        break;
      case DigestKind::kSphereMean:
        sum += x * first;
        square += x * x;
        break;
      case DigestKind::kMeanStd: {
        const double spread = x * double{bf16_to_f32(digest[d + i])};
        sum += x * first;
        square += spread * spread;
        break;
      }
      case DigestKind::kCentroid:
        sum += x * first;
        break;
      case DigestKind::kNone:
      case DigestKind::kSketch:
        break;
    }
  }
  if (a.kv.digest == DigestKind::kSphereMean) return sum + double{bf16_to_f32(digest[d])} * std::sqrt(square);
  if (a.kv.digest == DigestKind::kMeanStd) return sum + double{a.spread} * std::sqrt(square);
  return sum;
}

void score_sketches(const PageScoreArgs& a, uint32_t head, float* score) {
  const size_t d = a.kv.head_dim;
  const uint32_t kv_head = head / (a.n_heads / a.kv.n_kv_heads);
  float rotated[kMaxHeadDim];
  int8_t codes[kMaxHeadDim];
  SketchQuery q = {codes, 0, 0.0f};
  std::copy_n(a.q + head * d, d, rotated);
  sketch_query(rotated, d, q);
  for (uint32_t row = 0; row < a.kv.n_pages[kv_head]; ++row)
    score[row] = sketch_estimate(q, a.kv.digest_of(kv_head, row), d, a.scale);
}

}  // namespace

Status page_score(OpContext&, const PageScoreArgs& a) {
  const uint32_t group = a.n_heads / a.kv.n_kv_heads;
  for (uint32_t head = 0; head < a.n_heads; ++head) {
    const uint32_t kv_head = head / group, n = a.kv.n_pages[kv_head];
    float* score = a.score + size_t{head} * a.kv.capacity;
    if (a.kv.digest == DigestKind::kSketch) score_sketches(a, head, score);
    for (uint32_t row = 0; row < n; ++row) {
      const bool has_digest = row + 1 < n || a.kv.digest == DigestKind::kMinMax ||
                              a.kv.len[size_t{kv_head} * a.kv.capacity + row] == kPageTokens;
      if (!has_digest) {
        score[row] = -INFINITY;
      } else if (a.kv.digest != DigestKind::kSketch) {
        const float* q = a.q + size_t{head} * a.kv.head_dim;
        score[row] = static_cast<float>(estimate(a, q, a.kv.digest_of(kv_head, row)));
      }
    }
  }
  return {};
}

}  // namespace weir::ref
