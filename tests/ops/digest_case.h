// Pages with their digests, for the tests that score pages. The digests themselves are checked in test_page_digest.cpp.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "tests/ops/paged_kv.h"

namespace weir::test {

constexpr DigestKind kAllDigests[] = {DigestKind::kMinMax,   DigestKind::kCuboidMean, DigestKind::kSphereMean,
                                      DigestKind::kCentroid, DigestKind::kMeanStd,    DigestKind::kSketch};

inline std::string digest_name(DigestKind kind) {
  const char* const names[] = {"none", "minmax", "cuboid_mean", "sphere_mean", "centroid", "mean_std", "sketch"};
  return names[static_cast<size_t>(kind)];
}

// Digests of every page that has tokens, including open ones.
inline void build_digests(PagedKv& kv) {
  const KvView v = kv.view();
  for (uint32_t head = 0; head < v.n_kv_heads; ++head) {
    for (uint32_t row = 0; row < kv.n_pages(head); ++row)
      digest_page(v.digest, v.stored_keys_of(head, row), kv.len(head, row), v.digest_of(head, row));
  }
}

inline OpShapes page_shapes(uint32_t n_heads, uint32_t n_kv_heads, uint32_t head_dim, uint32_t max_pages) {
  OpShapes s;
  s.n_threads = 3;
  s.n_heads = n_heads;
  s.n_kv_heads = n_kv_heads;
  s.head_dim = head_dim;
  s.max_pages = max_pages;
  return s;
}

// Estimates [n_heads, capacity]; entries that the op does not write stay -1.
inline std::vector<float> page_scores(const Backend& backend, PagedKv& kv, const std::vector<float>& q,
                                      float spread = 1.0f, float scale = 0.125f) {
  const KvView v = kv.view();
  const auto n_heads = static_cast<uint32_t>(q.size() / v.head_dim);
  std::vector<float> score(size_t{n_heads} * v.capacity, -1.0f);
  Machine machine(backend, page_shapes(n_heads, v.n_kv_heads, v.head_dim, v.capacity));
  machine.check(backend.ops.page_score(machine.cx(), {score.data(), q.data(), v, n_heads, spread, scale}));
  return score;
}

inline void set_key(PagedKv& kv, uint32_t row, uint32_t token, const std::vector<float>& key) {
  for (size_t i = 0; i < key.size(); ++i) kv.key(0, row, token)[i] = f32_to_bf16(key[i]);
}

// q.k of one stored key, exact, and the sum of the magnitudes of its terms, which bounds the rounding error.
struct ExactDot {
  double value = 0.0, size = 0.0;
};

inline ExactDot exact_dot(const float* q, const uint16_t* key, size_t d) {
  ExactDot dot;
  for (size_t i = 0; i < d; ++i) {
    const double term = double{q[i]} * double{bf16_to_f32(key[i])};
    dot.value += term;
    dot.size += std::fabs(term);
  }
  return dot;
}

}  // namespace weir::test
