// The op page_score: estimates of attention from digests.
#pragma once

#include <cstdint>

#include "ops/types.h"

namespace weir {

// Estimate of q.k over each page from its digest, unscaled (docs/algorithms.md, "Digests and their estimates"). One
// query row.
// kMinMax: Quest's bound sum_i max(q_i * max_i, q_i * min_i); kCuboidMean: the same formula; kSphereMean: q.c + rho *
// |q|; kCentroid: q.mean; kMeanStd: q.mean + spread * sqrt(sum_i q_i^2 std_i^2); kSketch: the logarithm of the sum over
// the page's tokens of exp(scale * q.k), of keys as the sketch has them, divided by scale.
// The last row has an estimate with kMinMax, or if its page is full; otherwise it gets -inf.
struct PageScoreArgs {
  float* score;    // out [n_heads, capacity], table rows in use
  const float* q;  // [n_heads, head_dim]
  KvView kv;
  uint32_t n_heads;
  float spread;  // kMeanStd: standard deviations above the mean
  float scale;   // kSketch: attention's, of which the estimate is the log-sum-exp
};

}  // namespace weir
