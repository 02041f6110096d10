// vulkan: page_score_step against its definition in f64: scores of pages for a query that the kernel normalises and
// rotates itself. Digests of table rows that are not in use are NaN.
#include <cmath>
#include <vector>

#include "device/kernels/page_score_step.h"
#include "tests/cmocka_cpp.h"
#include "tests/ops/digest_case.h"
#include "tests/vulkan/device_arrays.h"
#include "vulkan/steps.h"

namespace weir::vulkan {
namespace {

using test::DeviceArrays;
using test::PagedKv;
using test::Random;

struct Spec {
  uint32_t group, head_dim, rope_dim, n_pages;
  RopeLayout layout;
  bool norm, by_row;
};

constexpr uint32_t kKvHeads = 2;
constexpr float kEps = 1e-5f;

// The query's head as it attends.
std::vector<double> turned_query(const Spec& s, const float* q, const std::vector<float>& norm,
                                 const std::vector<float>& cos_sin) {
  std::vector<double> y(q, q + s.head_dim);
  if (s.norm) {
    double sum = 0.0;
    for (const double x : y) sum += x * x;
    for (uint32_t c = 0; c < s.head_dim; ++c) y[c] *= norm[c] / std::sqrt(sum / s.head_dim + double{kEps});
  }
  const bool adjacent = s.layout == RopeLayout::kAdjacent;
  for (uint32_t i = 0; i < s.rope_dim / 2; ++i) {
    const uint32_t first = adjacent ? 2 * i : i, second = adjacent ? 2 * i + 1 : i + s.rope_dim / 2;
    const double a = y[first], b = y[second], cosine = cos_sin[2 * i], sine = cos_sin[2 * i + 1];
    y[first] = a * cosine - b * sine;
    y[second] = a * sine + b * cosine;
  }
  return y;
}

void check(const Spec& s, uint64_t seed) {
  Random random(seed);
  PagedKv kv({.n_kv_heads = kKvHeads, .head_dim = s.head_dim, .n_pages = s.n_pages, .last_len = 3}, seed);
  test::build_digests(kv);
  kv.n_pages(1) = (s.n_pages + 1) / 2;
  const uint32_t n_heads = kKvHeads * s.group, capacity = kv.capacity();
  std::vector<float> q(size_t{n_heads} * s.head_dim), norm(s.head_dim), cos_sin(s.rope_dim);
  for (float& x : q) x = random.normal();
  for (float& x : norm) x = 1.0f + 0.1f * random.normal();
  for (uint32_t i = 0; i < s.rope_dim / 2; ++i) {
    const double angle = 6.28 * random.below(1000) / 1000;
    cos_sin[2 * i] = static_cast<float>(std::cos(angle));
    cos_sin[2 * i + 1] = static_cast<float>(std::sin(angle));
  }
  KvView host = kv.view();
  std::vector<uint16_t> digests = kv.digests();
  if (s.by_row) {
    for (uint32_t head = 0; head < kKvHeads; ++head) {
      for (uint32_t row = 0; row < s.n_pages; ++row)
        std::copy_n(host.digest_of(head, row), 2 * s.head_dim, &digests[kv.at(head, row) * 2 * s.head_dim]);
    }
  }
  std::vector<float> score(size_t{n_heads} * capacity, -1.0f);
  {
    DeviceArrays m;
    PageScoreStepArgs a = {};
    a.op.score = m.both(score);
    a.op.q = m.in(q);
    a.op.kv = host;
    a.op.kv.digest_by_row = s.by_row;
    a.op.kv.digests = m.in(digests);
    a.op.kv.slots = m.in(host.slots, size_t{kKvHeads} * capacity);
    a.op.kv.n_pages = m.in(host.n_pages, kKvHeads);
    a.op.n_heads = n_heads;
    a.rope.q_norm = s.norm ? m.in(norm) : nullptr;
    a.rope.norm_eps = kEps;
    a.rope.cos_sin = s.rope_dim == 0 ? nullptr : m.in(cos_sin);
    a.rope.rope_dim = s.rope_dim;
    a.rope.layout = s.layout;
    if (!page_score_step(a).ok()) fail_msg("%s", last_error_text());
    m.finish();
  }
  for (uint32_t head = 0; head < n_heads; ++head) {
    const uint32_t stream = head / s.group, n = kv.n_pages(stream);
    const std::vector<double> x = turned_query(s, &q[size_t{head} * s.head_dim], norm, cos_sin);
    for (uint32_t row = 0; row < capacity; ++row) {
      const float got = score[size_t{head} * capacity + row];
      if (row + 1 >= n) {
        if (row + 1 == n ? got != -INFINITY : got != -1.0f) fail_msg("head %u, row %u of %u: %g", head, row, n, got);
        continue;
      }
      const uint16_t* const digest = host.digest_of(stream, row);
      double want = 0.0, size = 0.0;
      for (uint32_t c = 0; c < s.head_dim; ++c) {
        const double high = x[c] * bf16_to_f32(digest[c]), low = x[c] * bf16_to_f32(digest[s.head_dim + c]);
        want += std::fmax(high, low);
        size += std::fabs(std::fmax(high, low));
      }
      if (!(std::fabs(got - want) <= 2e-6 * size))
        fail_msg("head_dim %u, group %u, head %u, row %u: %.8g instead of %.8g", s.head_dim, s.group, head, row, got,
                 want);
    }
  }
}

void page_score_step__of_every_shape(void**) {
  uint64_t seed = 1;
  for (const uint32_t head_dim : {64u, 80u, 128u, 256u}) {
    for (const uint32_t group : {1u, 3u, 4u, 9u}) {
      for (const RopeLayout layout : {RopeLayout::kAdjacent, RopeLayout::kHalfSplit}) {
        const uint32_t rope_dim = group == 3 ? head_dim / 2 : group == 9 ? 0 : head_dim;
        check({group, head_dim, rope_dim, 70, layout, group == 4, head_dim == 80}, seed++);
      }
    }
  }
}

void page_score_step__of_few_and_of_many_pages(void**) {
  for (const uint32_t n_pages : {1u, 2u, 32u, 33u, 3000u})
    check({2, 4, 4, n_pages, RopeLayout::kHalfSplit, true, false}, n_pages);
}

}  // namespace
}  // namespace weir::vulkan

int main() {
  using namespace weir::vulkan;
  const CMUnitTest tests[] = {
      cmocka_unit_test(page_score_step__of_every_shape),
      cmocka_unit_test(page_score_step__of_few_and_of_many_pages),
  };
  return cmocka_run_group_tests_name("vulkan/page_score_step", tests, nullptr, nullptr);
}
