// Estimates of q.k over pages from their digests, defined. Sums are in f64: the exact value, rounded once.
// Papers: Tang et al., "Quest", arXiv:2406.10774, sec. 3.2 (kMinMax, a true bound); Chen et al., "ArkVale", NeurIPS
// 2024, sec. 5.2 (cuboid, sphere, centroid).
#include <algorithm>
#include <cmath>

#include "ops/page_score.h"
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
        break;
    }
  }
  if (a.kv.digest == DigestKind::kSphereMean) return sum + double{bf16_to_f32(digest[d])} * std::sqrt(square);
  if (a.kv.digest == DigestKind::kMeanStd) return sum + double{a.spread} * std::sqrt(square);
  return sum;
}

}  // namespace

Status page_score(OpContext&, const PageScoreArgs& a) {
  const uint32_t group = a.n_heads / a.kv.n_kv_heads;
  for (uint32_t head = 0; head < a.n_heads; ++head) {
    const uint32_t kv_head = head / group, n = a.kv.n_pages[kv_head];
    for (uint32_t row = 0; row < n; ++row) {
      const bool has_digest = row + 1 < n || a.kv.digest == DigestKind::kMinMax ||
                              a.kv.len[size_t{kv_head} * a.kv.capacity + row] == kPageTokens;
      a.score[size_t{head} * a.kv.capacity + row] =
          has_digest ? static_cast<float>(estimate(a, a.q + size_t{head} * a.kv.head_dim, a.kv.digest_of(kv_head, row)))
                     : -INFINITY;
    }
  }
  return {};
}

}  // namespace weir::ref
