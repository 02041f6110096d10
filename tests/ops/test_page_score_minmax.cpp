// ops: page_score_minmax. Mirrors lib/ops/page_score_minmax_ref.cpp, lib/cpu/page_score_minmax.cpp.
#include <algorithm>

#include "tests/ops/paged_kv.h"

namespace weir::test {
namespace {

// Digests of every page, as rope_append makes them.
void build_digests(PagedKv& kv, const KvShapeSpec& s) {
  for (uint32_t head = 0; head < s.n_kv_heads; ++head) {
    for (uint32_t row = 0; row < kv.n_pages(head); ++row) {
      uint16_t* high = &kv.digests()[size_t{kv.slot(head, row)} * 2 * s.head_dim];
      for (size_t i = 0; i < s.head_dim; ++i) {
        uint16_t max = kv.key(head, row, 0)[i], min = max;
        for (uint32_t t = 1; t < kv.len(head, row); ++t) {
          const uint16_t key = kv.key(head, row, t)[i];
          if (bf16_to_f32(key) > bf16_to_f32(max)) max = key;
          if (bf16_to_f32(key) < bf16_to_f32(min)) min = key;
        }
        high[i] = max;
        high[s.head_dim + i] = min;
      }
    }
  }
}

std::vector<float> scores(const Backend& backend, PagedKv& kv, const KvShapeSpec& s, const std::vector<float>& q,
                          uint32_t n_heads) {
  std::vector<float> score(size_t{n_heads} * kv.capacity(), -1.0f);
  OpShapes shapes;
  shapes.n_threads = 3;
  shapes.n_heads = n_heads;
  shapes.n_kv_heads = s.n_kv_heads;
  shapes.head_dim = s.head_dim;
  shapes.max_pages = kv.capacity();
  Machine machine(backend, shapes);
  machine.check(backend.ops.page_score_minmax(machine.cx(), {score.data(), q.data(), kv.view(), n_heads}));
  return score;
}

std::vector<Output> run_spec(const Backend& backend, const KvShapeSpec& s, uint32_t group) {
  PagedKv kv(s, 3);
  build_digests(kv, s);
  kv.n_pages(0) = s.n_pages - 1;  // streams of different lengths
  Random random(4);
  const std::vector<float> q = random.normals(size_t{s.n_kv_heads} * group * s.head_dim);
  return {{"score", scores(backend, kv, s, q, s.n_kv_heads * group)}};
}

std::vector<OpCase> cases() {
  std::vector<OpCase> list;
  const auto add = [&](const std::string& name, const KvShapeSpec& s, uint32_t group) {
    list.push_back({"page_score_minmax__" + name, [s, group](const Backend& b) { return run_spec(b, s, group); }, 0.0,
                    "products are rounded one by one and summed in f64, so that all backends rank pages alike"});
  };
  for (uint32_t d : {8u, 20u, 64u, 80u, 96u, 128u, 256u}) {
    for (uint32_t group : {1u, 2u, 3u, 4u, 7u, 8u}) {
      add("d" + std::to_string(d) + "_g" + std::to_string(group),
          {.n_kv_heads = 2, .head_dim = d, .n_pages = 5, .last_len = 3}, group);
    }
  }
  add("many_pages", {.n_kv_heads = 3, .head_dim = 64, .n_pages = 200, .last_len = 3}, 3);
  return list;
}

// The bound holds for every page length, group and head size; equality when the page has one key.
void bound_is_never_below_the_maximum(const Backend& backend) {
  uint64_t seed = 100;
  for (uint32_t d : {64u, 80u, 96u, 128u, 256u}) {
    for (uint32_t group : {1u, 3u, 4u, 7u, 8u}) {
      const KvShapeSpec s = {.n_kv_heads = 1, .head_dim = d, .n_pages = 16};
      PagedKv kv(s, ++seed);
      for (uint32_t row = 0; row < 16; ++row) kv.len(0, row) = row + 1;
      build_digests(kv, s);
      Random random(++seed);
      const std::vector<float> q = random.normals(size_t{group} * d);
      const std::vector<float> score = scores(backend, kv, s, q, group);
      for (uint32_t g = 0; g < group; ++g) {
        for (uint32_t row = 0; row < 16; ++row) {
          double best = -INFINITY, size = 0.0;
          for (uint32_t t = 0; t <= row; ++t) {
            double dot = 0.0;
            for (size_t i = 0; i < d; ++i) {
              dot += double{q[g * d + i]} * double{bf16_to_f32(kv.key(0, row, t)[i])};
              size += std::fabs(double{q[g * d + i]} * double{bf16_to_f32(kv.key(0, row, t)[i])});
            }
            best = std::max(best, dot);
          }
          const double bound = double{score[g * kv.capacity() + row]}, rounding = 1e-6 * size;
          assert_true(bound >= best - rounding);
          if (row == 0) assert_true(std::fabs(bound - best) <= rounding);
        }
      }
    }
  }
}

// Keys (1,-2), (3,0), (2,-1) and q = (1,-1): M = (3,0), m = (1,-2), bound 5 (the maximum is 3).
void three_keys_golden(const Backend& backend) {
  const KvShapeSpec s = {.n_kv_heads = 1, .head_dim = 2, .n_pages = 1, .last_len = 3};
  PagedKv kv(s, 1);
  const float keys[3][2] = {{1.0f, -2.0f}, {3.0f, 0.0f}, {2.0f, -1.0f}};
  for (uint32_t t = 0; t < 3; ++t) {
    for (size_t i = 0; i < 2; ++i) kv.key(0, 0, t)[i] = f32_to_bf16(keys[t][i]);
  }
  build_digests(kv, s);
  assert_float_equal(scores(backend, kv, s, {1.0f, -1.0f}, 1)[0], 5.0f, 0.0f);
}

}  // namespace
}  // namespace weir::test

int main() {
  using namespace weir::test;
  return run_group("ops/page_score_minmax", cases(),
                   {{"page_score_minmax__bound_is_never_below_the_maximum", bound_is_never_below_the_maximum},
                    {"page_score_minmax__three_keys_golden", three_keys_golden}});
}
