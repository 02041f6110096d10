// ops: page_score. Mirrors lib/ops/page_score_ref.cpp, lib/cpu/page_score.cpp.
#include "ops/hadamard.h"
#include "ops/sketch.h"
#include "tests/ops/digest_case.h"

namespace weir::test {
namespace {

std::vector<Output> run_spec(const Backend& backend, const KvShapeSpec& s, uint32_t group) {
  PagedKv kv(s, 3);
  build_digests(kv);
  kv.n_pages(0) = s.n_pages - 1;  // streams of different lengths; the last page of the first is full
  Random random(4);
  const std::vector<float> q = random.normals(size_t{s.n_kv_heads} * group * s.head_dim);
  return {{"score", page_scores(backend, kv, q, 1.5f)}};
}

std::vector<OpCase> cases() {
  std::vector<OpCase> list;
  const auto add = [&](const std::string& name, const KvShapeSpec& s, uint32_t group) {
    list.push_back({"page_score__" + name, [s, group](const Backend& b) { return run_spec(b, s, group); }, 1e-12,
                    "sums in f32, one per lane, against f64"});
  };
  for (DigestKind kind : kAllDigests) {
    const std::string name = digest_name(kind);
    for (uint32_t d : {8u, 20u, 24u, 40u, 64u, 72u, 80u, 96u, 112u, 128u, 160u, 192u, 256u}) {
      for (uint32_t group : {1u, 2u, 3u, 4u, 5u, 7u, 8u, 12u, 16u}) {
        add(name + "_d" + std::to_string(d) + "_g" + std::to_string(group),
            {.n_kv_heads = 2, .head_dim = d, .n_pages = 5, .last_len = 3, .digest = kind}, group);
      }
    }
    add(name + "_many_pages",
        {.n_kv_heads = 3, .head_dim = 64, .n_pages = 200, .last_len = 3, .gaps = true, .digest = kind}, 3);
  }
  return list;
}

// The bound holds for every page length, group and head size; equality when the page has one key.
void bound_is_never_below_the_maximum(const Backend& backend) {
  uint64_t seed = 100;
  for (uint32_t d : {8u, 20u, 64u, 80u, 96u, 128u, 256u}) {
    for (uint32_t group : {1u, 3u, 4u, 7u, 8u}) {
      PagedKv kv({.n_kv_heads = 1, .head_dim = d, .n_pages = 16}, ++seed);
      for (uint32_t row = 0; row < 16; ++row) kv.len(0, row) = row + 1;
      build_digests(kv);
      Random random(++seed);
      const std::vector<float> q = random.normals(size_t{group} * d);
      const std::vector<float> score = page_scores(backend, kv, q);
      for (uint32_t g = 0; g < group; ++g) {
        for (uint32_t row = 0; row < 16; ++row) {
          ExactDot best = {-INFINITY, 0.0};
          for (uint32_t t = 0; t <= row; ++t) {
            const ExactDot dot = exact_dot(&q[g * d], kv.key(0, row, t), d);
            best = {std::max(best.value, dot.value), std::max(best.size, dot.size)};
          }
          const double bound = double{score[g * kv.capacity() + row]}, rounding = 1e-6 * best.size;
          assert_true(bound >= best.value - rounding);
          if (row == 0) assert_true(std::fabs(bound - best.value) <= rounding);
        }
      }
    }
  }
}

// Only kMinMax has a digest for the open page. A full last page has a digest of every kind.
void open_page_scores_with_minmax_only(const Backend& backend) {
  for (DigestKind kind : kAllDigests) {
    for (uint32_t last_len : {1u, 15u, 16u}) {
      const KvShapeSpec s = {.n_kv_heads = 2, .head_dim = 64, .n_pages = 3, .last_len = last_len, .digest = kind};
      PagedKv kv(s, 6);
      build_digests(kv);
      Random random(7);
      const std::vector<float> score = page_scores(backend, kv, random.normals(size_t{6} * 64));
      for (uint32_t head = 0; head < 6; ++head) {
        for (uint32_t row = 0; row < kv.capacity(); ++row) {
          const float x = score[head * kv.capacity() + row];
          const bool scored = row < 2 || last_len == 16 || kind == DigestKind::kMinMax;
          if (row >= 3) {
            assert_true(x == -1.0f);
          } else {
            assert_true(scored ? std::isfinite(x) && x != -1.0f : x == -INFINITY);
          }
        }
      }
    }
  }
}

// The keys of row 0; row 1 is the open page.
float score_of(const Backend& backend, DigestKind kind, const std::vector<std::vector<float>>& keys,
               const std::vector<float>& q, float spread = 1.0f) {
  const auto d = static_cast<uint32_t>(q.size());
  PagedKv kv({.n_kv_heads = 1, .head_dim = d, .n_pages = 2, .last_len = 1, .digest = kind}, 1);
  kv.len(0, 0) = static_cast<uint32_t>(keys.size());
  for (uint32_t t = 0; t < keys.size(); ++t) set_key(kv, 0, t, keys[t]);
  build_digests(kv);
  return page_scores(backend, kv, q, spread)[0];
}

// The two pages of docs/algorithms.md, "Digests and their estimates". Keys (1,-2), (3,0), (2,-1) and q = (1,-1): the
// maximum is 3, the bound 5, the mean cuboid's estimate 13/3. Then keys whose statistics test_page_digest names, and
// q = (3,4), of length 5. What is not a whole number is stored in bf16, to 2^-9 of itself.
void estimates_golden(const Backend& backend) {
  const std::vector<std::vector<float>> three = {{1, -2}, {3, 0}, {2, -1}};
  assert_float_equal(score_of(backend, DigestKind::kMinMax, three, {1, -1}), 5.0f, 0.0f);
  assert_float_equal(score_of(backend, DigestKind::kCuboidMean, three, {1, -1}), 13.0f / 3, 0.01f);
  assert_float_equal(score_of(backend, DigestKind::kCentroid, three, {1, -1}), 3.0f, 0.0f);
  assert_float_equal(score_of(backend, DigestKind::kSphereMean, three, {1, -1}), 3.0f + 4.0f / 3, 0.01f);
  assert_float_equal(score_of(backend, DigestKind::kMeanStd, three, {1, -1}), 3.0f + 2.0f / std::sqrt(3.0f), 0.01f);
  const std::vector<std::vector<float>> four = {{0, 3}, {0, -3}, {0, 3}, {8, -3}};
  assert_float_equal(score_of(backend, DigestKind::kMinMax, four, {3, 4}), 36.0f, 0.0f);
  assert_float_equal(score_of(backend, DigestKind::kSphereMean, four, {3, 4}), 12.0f + 5.0f * 5.0f, 1e-5f);
  assert_float_equal(score_of(backend, DigestKind::kCentroid, four, {3, 4}), 6.0f, 0.0f);
  const float deviation = std::sqrt(9.0f * 12.0f + 16.0f * 9.0f);
  for (float spread : {0.0f, 1.0f, 2.0f})
    assert_float_equal(score_of(backend, DigestKind::kMeanStd, four, {3, 4}, spread), 6.0f + spread * deviation, 0.05f);
}

// Every key of a page has one outlier channel, and a channel has outliers of both signs (docs/algorithms.md, "Digests
// and their estimates"). The true maximum is one outlier; the bound adds all of them up, so the page beats one of keys
// that really align with the query. The mean distance is not misled.
void outlier_channels_mislead_minmax_only(const Backend& backend) {
  for (uint32_t d : {8u, 64u, 80u}) {
    Random random(d);
    std::vector<float> q(d);
    for (float& x : q) x = random.below(2) == 0 ? 1.0f : -1.0f;
    std::vector<std::vector<float>> outliers(16, std::vector<float>(d)), aligned(16, std::vector<float>(d));
    for (uint32_t t = 0; t < 16; ++t) {
      outliers[t][(t / 2) * (d / 8)] = t % 2 == 0 ? 20.0f : -20.0f;
      for (uint32_t i = 0; i < d; ++i) aligned[t][i] = 48.0f / static_cast<float>(d) * q[i];
    }
    const float real = score_of(backend, DigestKind::kCuboidMean, aligned, q);
    assert_float_equal(real, 48.0f, 0.2f);
    assert_float_equal(score_of(backend, DigestKind::kMinMax, aligned, q), real, 0.2f);
    assert_float_equal(score_of(backend, DigestKind::kMinMax, outliers, q), 8 * 20.0f, 0.0f);
    assert_float_equal(score_of(backend, DigestKind::kCuboidMean, outliers, q), 20.0f, 0.0f);
  }
}

// Keys whose rotated channels are levels are stored without loss, and so is a query that is a whole number in all of
// them: then the estimate is the log-sum-exp of q.k.
void sketch_is_the_log_sum_exp(const Backend& backend) {
  for (uint32_t d : {8u, 24u, 64u, 128u, 256u}) {
    for (float scale : {0.03f, 0.125f, 1.0f}) {
      Random random(d);
      std::vector<float> q(d);
      for (float& x : q) x = static_cast<float>(random.below(255)) - 127.0f;
      q[0] = 127.0f;
      std::vector<std::vector<float>> keys(kPageTokens, std::vector<float>(d));
      for (auto& key : keys) {
        // As many of each level: then 2 * kHalfStep times the root mean square, 2.23, lies between 1 and 3.
        for (uint32_t i = 0; i < d; ++i) key[i] = (i % 2 == 0 ? 1.0f : 3.0f) * (random.below(2) == 0 ? -1.0f : 1.0f);
      }
      double high = -INFINITY, sum = 0.0;
      std::vector<double> dots(kPageTokens);
      const auto block = static_cast<float>(hadamard_block(d));
      add_by_hadamard(q.data(), d);
      for (float& x : q) x /= block;  // rotating once more gives the numbers above
      for (uint32_t t = 0; t < kPageTokens; ++t) {
        add_by_hadamard(keys[t].data(), d);
        for (uint32_t i = 0; i < d; ++i) dots[t] += double{keys[t][i]} * double{q[i]};
        high = std::max(high, dots[t]);
      }
      for (double dot : dots) sum += std::exp(double{scale} * (dot - high));
      const double want = high + std::log(sum) / double{scale};
      PagedKv kv({.n_kv_heads = 1, .head_dim = d, .n_pages = 2, .last_len = 1, .digest = DigestKind::kSketch}, 1);
      for (uint32_t t = 0; t < kPageTokens; ++t) set_key(kv, 0, t, keys[t]);
      build_digests(kv);
      const double got = double{page_scores(backend, kv, q, 1.0f, scale)[0]};
      if (std::fabs(got - want) > 2e-5 * std::fabs(high)) fail_msg("d %u: %g is not %g", d, got, want);
    }
  }
}

// Keys and queries along one channel are equal in all channels when they are rotated: the largest sums of products.
void sketch_of_one_channel(const Backend& backend) {
  for (uint32_t d : {8u, 64u, 256u, 512u, 1024u}) {
    for (float sign : {1.0f, -1.0f}) {
      PagedKv kv({.n_kv_heads = 1, .head_dim = d, .n_pages = 2, .last_len = 1, .digest = DigestKind::kSketch}, 1);
      std::vector<float> key(d), q(d);
      key[0] = 3.0f, q[0] = sign;
      for (uint32_t t = 0; t < kPageTokens; ++t) set_key(kv, 0, t, key);
      build_digests(kv);
      assert_float_equal(page_scores(backend, kv, q, 1.0f, 1.0f)[0], sign * 3.0f + std::log(16.0f), 1e-4f);
    }
  }
}

// Estimates of many pages are near the log-sum-exp of q.k: what 2 bits lose is an eighth of the spread of q.k, in
// squares.
void sketch_is_near(const Backend& backend) {
  for (uint32_t d : {64u, 80u, 128u}) {
    PagedKv kv({.n_kv_heads = 1, .head_dim = d, .n_pages = 100, .digest = DigestKind::kSketch}, d);
    build_digests(kv);
    Random random(9);
    const std::vector<float> q = random.normals(size_t{2} * d);
    const std::vector<float> score = page_scores(backend, kv, q, 1.0f, 1.0f);
    double error = 0.0;
    for (uint32_t g = 0; g < 2; ++g) {
      for (uint32_t row = 0; row < 100; ++row) {
        double sum = 0.0;
        for (uint32_t t = 0; t < kPageTokens; ++t) sum += std::exp(exact_dot(&q[g * d], kv.key(0, row, t), d).value);
        error += std::pow(double{score[g * kv.capacity() + row]} - std::log(sum), 2) / 200;
      }
    }
    assert_true(error < 0.2 * d);  // q.k has the variance d
  }
}

// A page with a key that is not finite comes before all others, and one whose digest is spoilt has no estimate,
// whatever keys it had.
void sketches_that_are_special(const Backend& backend) {
  for (uint32_t group : {1u, 3u, 6u}) {
    PagedKv kv({.n_kv_heads = 1, .head_dim = 64, .n_pages = 40, .digest = DigestKind::kSketch}, 5);
    kv.key(0, 3, 0)[0] = PagedKv::kNan;
    kv.key(0, 17, 15)[63] = f32_to_bf16(INFINITY);
    kv.key(0, 33, 7)[5] = f32_to_bf16(-3e38f);
    kv.key(0, 38, 7)[5] = f32_to_bf16(INFINITY);
    for (uint32_t t = 0; t < kPageTokens; ++t) std::fill_n(kv.key(0, 20, t), 64, f32_to_bf16(1e10f));  // large
    for (uint32_t t = 0; t < kPageTokens; ++t) std::fill_n(kv.key(0, 21, t), 64, uint16_t{0});
    build_digests(kv);
    const size_t n = digest_elements(DigestKind::kSketch, 64);
    for (uint32_t row : {25u, 38u}) std::fill_n(kv.view().digest_of(0, row), n, uint16_t{0x7FC0});
    Random random(6);
    const std::vector<float> score = page_scores(backend, kv, random.normals(size_t{group} * 64));
    for (uint32_t g = 0; g < group; ++g) {
      for (uint32_t row = 0; row < 40; ++row) {
        const float x = score[g * kv.capacity() + row];
        if (row == 25 || row == 38) {
          assert_true(std::isnan(x));
        } else if (row == 3 || row == 17 || row == 33) {
          assert_float_equal(x, kSketchMost, 0.0f);
        } else if (row == 21) {
          assert_float_equal(x, std::log(16.0f) / 0.125f, 1e-4f);
        } else {
          assert_true(std::isfinite(x) && x < kSketchMost);
        }
      }
    }
  }
}

// A page of one token: the bound is q.k itself, for any signs.
void page_of_one_token_is_its_key(const Backend& backend) {
  for (uint32_t d : {8u, 20u, 64u, 128u}) {
    PagedKv kv({.n_kv_heads = 1, .head_dim = d, .n_pages = 50, .last_len = 1}, d);
    for (uint32_t row = 0; row < 50; ++row) kv.len(0, row) = 1;
    build_digests(kv);
    Random random(8);
    const std::vector<float> q = random.normals(size_t{2} * d);
    const std::vector<float> score = page_scores(backend, kv, q);
    for (uint32_t g = 0; g < 2; ++g) {
      for (uint32_t row = 0; row < 50; ++row) {
        const ExactDot dot = exact_dot(&q[g * d], kv.key(0, row, 0), d);
        assert_true(std::fabs(double{score[g * kv.capacity() + row]} - dot.value) <= 1e-6 * dot.size);
      }
    }
  }
}

}  // namespace
}  // namespace weir::test

int main() {
  using namespace weir::test;
#define WEIR_PROPERTY(name) \
  { "page_score__" #name, name }
  return run_group(
      "ops/page_score", cases(),
      {WEIR_PROPERTY(bound_is_never_below_the_maximum), WEIR_PROPERTY(open_page_scores_with_minmax_only),
       WEIR_PROPERTY(estimates_golden), WEIR_PROPERTY(outlier_channels_mislead_minmax_only),
       WEIR_PROPERTY(page_of_one_token_is_its_key), WEIR_PROPERTY(sketch_is_the_log_sum_exp),
       WEIR_PROPERTY(sketch_is_near), WEIR_PROPERTY(sketch_of_one_channel), WEIR_PROPERTY(sketches_that_are_special)});
#undef WEIR_PROPERTY
}
