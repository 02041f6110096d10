// ops: page_digest and digest_page. Mirrors lib/ops/page_digest_ref.cpp, lib/cpu/page_digest.cpp.
#include "ops/hadamard.h"
#include "ops/sketch.h"
#include "tests/ops/digest_case.h"

namespace weir::test {
namespace {

std::vector<float> widened(const std::vector<uint16_t>& v, DigestKind kind) {
  std::vector<float> out;
  for (uint16_t x : v) {
    // A sketch is codes for the most part. Untouched elements are the same number.
    const float number = kind == DigestKind::kSketch ? static_cast<float>(x) : bf16_to_f32(x);
    out.push_back(x == PagedKv::kNan ? 12345.0f : number);
  }
  return out;
}

void run_op(const Backend& backend, PagedKv& kv, const std::vector<uint32_t>& first_row, uint32_t n_rows) {
  const KvView v = kv.view();
  Machine machine(backend, page_shapes(v.n_kv_heads, v.n_kv_heads, v.head_dim, v.capacity));
  machine.check(backend.ops.page_digest(machine.cx(), {v, first_row.data(), n_rows}));
}

std::vector<OpCase> cases() {
  std::vector<OpCase> list;
  const auto add = [&](const std::string& name, const KvShapeSpec& s, std::vector<uint32_t> first_row,
                       uint32_t n_rows) {
    const auto run = [=](const Backend& backend) -> std::vector<Output> {
      PagedKv kv(s, 3);
      kv.n_pages(0) = s.n_pages - 1;  // streams of different lengths
      run_op(backend, kv, first_row, n_rows);
      return {{"digests", widened(kv.digests(), s.digest)}};
    };
    list.push_back({"page_digest__" + name, run, 0.0, "the same roundings in the same order"});
  };
  for (DigestKind kind : kAllDigests) {
    const std::string name = digest_name(kind);
    for (uint32_t d : {8u, 20u, 24u, 40u, 64u, 72u, 80u, 96u, 112u, 128u, 160u, 192u, 256u}) {
      const KvShapeSpec s = {.n_kv_heads = 2, .head_dim = d, .n_pages = 7, .last_len = 3, .digest = kind};
      add(name + "_d" + std::to_string(d), s, {0, 0}, 7);
      add(name + "_one_page_d" + std::to_string(d), s, {5, 4}, 1);
    }
    add(name + "_many_pages", {.n_kv_heads = 3, .head_dim = 64, .n_pages = 90, .gaps = true, .digest = kind},
        {2, 40, 0}, 77);
  }
  return list;
}

// A digest is written exactly when its page is full, in use, and in the range.
void writes_full_pages_of_the_range(const Backend& backend) {
  const std::vector<uint32_t> first_row = {1, 4};
  constexpr uint32_t kRows = 3;
  for (DigestKind kind : kAllDigests) {
    const KvShapeSpec s = {.n_kv_heads = 2, .head_dim = 20, .n_pages = 7, .last_len = 15, .digest = kind};
    PagedKv kv(s, 5);
    kv.n_pages(0) = 3;  // rows beyond n_pages do not count, whatever they contain
    run_op(backend, kv, first_row, kRows);
    const size_t n = digest_elements(kind, s.head_dim);
    for (uint32_t head = 0; head < 2; ++head) {
      for (uint32_t row = 0; row < kv.capacity(); ++row) {
        const bool written = row >= first_row[head] && row < first_row[head] + kRows && row < kv.n_pages(head) &&
                             kv.len(head, row) == kPageTokens;
        std::vector<uint16_t> want(n, PagedKv::kNan);
        if (written) digest_page(kind, kv.view().keys_of(head, row), kPageTokens, want.data());
        assert_memory_equal(kv.view().digest_of(head, row), want.data(), n * sizeof(uint16_t));
      }
    }
  }
}

void assert_digest(DigestKind kind, const std::vector<std::vector<float>>& keys, const std::vector<float>& want) {
  const size_t d = keys[0].size();
  std::vector<uint16_t> rows;
  for (const auto& key : keys)
    for (float x : key) rows.push_back(f32_to_bf16(x));
  std::vector<uint16_t> got(digest_elements(kind, d), PagedKv::kNan);
  assert_int_equal(got.size(), want.size());
  digest_page(kind, keys_in<const uint16_t>(KvFormat::kBf16, rows.data(), d), static_cast<uint32_t>(keys.size()),
              got.data());
  for (size_t i = 0; i < want.size(); ++i) assert_int_equal(got[i], f32_to_bf16(want[i]));
}

// The two pages of docs/algorithms.md, "Digests and their estimates". The middle of the second is not its mean: channel
// 0 is 0 0 0 8 (middle 4, mean distance 4, mean 2, variance 12), channel 1 is 3 -3 3 -3 (middle 0, distance 3, variance
// 9); every key is 5 from the middle (4, 0).
void hand_computed_values(void**) {
  const std::vector<std::vector<float>> three = {{1, -2}, {3, 0}, {2, -1}};
  assert_digest(DigestKind::kMinMax, three, {3, 0, 1, -2});
  assert_digest(DigestKind::kCuboidMean, three, {8.0f / 3, -1.0f / 3, 4.0f / 3, -5.0f / 3});
  assert_digest(DigestKind::kSphereMean, three, {2, -1, 2.0f * std::sqrt(2.0f) / 3, 0});
  assert_digest(DigestKind::kCentroid, three, {2, -1});
  assert_digest(DigestKind::kMeanStd, three, {2, -1, std::sqrt(2.0f / 3), std::sqrt(2.0f / 3)});
  const std::vector<std::vector<float>> four = {{0, 3}, {0, -3}, {0, 3}, {8, -3}};
  assert_digest(DigestKind::kMinMax, four, {8, 3, 0, -3});
  assert_digest(DigestKind::kCuboidMean, four, {8, 3, 0, -3});
  assert_digest(DigestKind::kSphereMean, four, {4, 0, 5, 0});
  assert_digest(DigestKind::kCentroid, four, {2, 0});
  assert_digest(DigestKind::kMeanStd, four, {2, 0, std::sqrt(12.0f), 3});
}

// Statistics of one channel in f64.
struct Channel {
  double high = -INFINITY, low = INFINITY, mean = 0.0, distance = 0.0, variance = 0.0;
  Channel(const uint16_t* keys, uint32_t len, size_t d, size_t i) {
    const auto key = [&](uint32_t t) { return double{bf16_to_f32(keys[t * d + i])}; };
    for (uint32_t t = 0; t < len; ++t) {
      high = std::max(high, key(t));
      low = std::min(low, key(t));
      mean += key(t) / len;
    }
    for (uint32_t t = 0; t < len; ++t) {
      distance += std::fabs(key(t) - middle()) / len;
      variance += (key(t) - mean) * (key(t) - mean) / len;
    }
  }
  double middle() const { return (high + low) / 2; }
};

// bf16 has 8 bits of mantissa; the statistics themselves are f32.
void assert_rounded(uint16_t got, double want) {
  assert_true(std::fabs(double{bf16_to_f32(got)} - want) <= std::fabs(want) * 0x1p-8 + 1e-5);
}

// Every kind and every number of tokens against f64.
void statistics_of_every_length(void**) {
  constexpr size_t d = 20;
  for (DigestKind kind : kAllDigests) {
    if (kind == DigestKind::kSketch) continue;  // it has no statistics
    for (uint32_t len = 1; len <= kPageTokens; ++len) {
      PagedKv kv({.head_dim = d, .n_pages = 1, .last_len = len, .digest = kind}, 40 + len);
      const uint16_t* keys = kv.key(0, 0, 0);
      std::vector<uint16_t> got(digest_elements(kind, d), PagedKv::kNan);
      digest_page(kind, keys_in<const uint16_t>(KvFormat::kBf16, keys, d), len, got.data());
      double radius = 0.0;  // from the centre as stored
      for (uint32_t t = 0; t < len; ++t) {
        double square = 0.0;
        for (size_t i = 0; i < d; ++i)
          square += std::pow(double{bf16_to_f32(keys[t * d + i])} - double{bf16_to_f32(got[i])}, 2);
        radius += std::sqrt(square) / len;
      }
      for (size_t i = 0; i < d; ++i) {
        const Channel c(keys, len, d, i);
        switch (kind) {
          case DigestKind::kMinMax:
            assert_true(double{bf16_to_f32(got[i])} == c.high && double{bf16_to_f32(got[d + i])} == c.low);
            break;
          case DigestKind::kCuboidMean:
            assert_rounded(got[i], c.middle() + c.distance);
            assert_rounded(got[d + i], c.middle() - c.distance);
            break;
          case DigestKind::kSphereMean:
            assert_rounded(got[i], c.middle());
            break;
          default:
            assert_rounded(got[i], c.mean);
            if (kind == DigestKind::kMeanStd) assert_rounded(got[d + i], std::sqrt(c.variance));
        }
      }
      if (kind == DigestKind::kSphereMean) assert_rounded(got[d], radius);
    }
  }
}

// The sketch of a page with these keys; others are zeros.
std::vector<uint16_t> sketch_of(const std::vector<std::vector<float>>& keys) {
  const size_t d = keys[0].size();
  std::vector<uint16_t> rows, sketch(digest_elements(DigestKind::kSketch, d), PagedKv::kNan);
  for (const auto& key : keys)
    for (float x : key) rows.push_back(f32_to_bf16(x));
  digest_page(DigestKind::kSketch, rows.data(), static_cast<uint32_t>(keys.size()), d, sketch.data());
  return sketch;
}

float scale_of(const std::vector<uint16_t>& sketch, uint32_t token) {
  return bf16_to_f32(sketch[sketch.size() - kPageTokens + token]);
}

// Heads of two channels: (1, -2) is (-1, 3) rotated, whose levels with the scale 1 are exactly these; halved for the
// block of two. (2, 2) is (4, 0), whose root mean square is sqrt(8): levels 3 and 1, the least squares are 12 / 10.
void sketches_by_hand(void**) {
  const std::vector<uint16_t> sketch = sketch_of({{1, -2}, {2, 2}, {0, 0}});
  assert_int_equal(sketch.size(), 2 * 16 + 16);
  assert_int_equal(sketch_code(sketch.data(), 0, 0), 1);
  assert_int_equal(sketch_code(sketch.data(), 0, 1), 3);
  assert_float_equal(scale_of(sketch, 0), 0.5f, 0.0f);
  assert_int_equal(sketch_code(sketch.data(), 1, 0), 3);
  assert_int_equal(sketch_code(sketch.data(), 1, 1), 2);
  assert_float_equal(scale_of(sketch, 1), 12.0f / 10 / 2, 0.003f);
  for (uint32_t token = 2; token < kPageTokens; ++token) assert_float_equal(scale_of(sketch, token), 0.0f, 0.0f);
}

// Channels are where sketch.h says, and those that a head does not have are zeros.
void sketches_pack_every_channel(void**) {
  for (uint32_t d : {8u, 20u, 64u, 80u, 96u, 128u, 192u, 256u}) {
    Random random(d);
    std::vector<std::vector<float>> keys(kPageTokens);
    for (auto& key : keys) key = random.normals(d);
    const std::vector<uint16_t> sketch = sketch_of(keys);
    const auto* bytes = reinterpret_cast<const uint8_t*>(sketch.data());
    for (uint32_t t = 0; t < kPageTokens; ++t) {
      std::vector<float> row(d);
      double square = 0.0, error = 0.0, rest = 0.0;
      for (uint32_t i = 0; i < d; ++i) row[i] = bf16_to_f32(f32_to_bf16(keys[t][i]));
      add_by_hadamard(row.data(), d);
      const float scale = scale_of(sketch, t) * static_cast<float>(hadamard_block(d));
      for (uint32_t i = 0; i < sketch_words(d) * kSketchChannels; ++i) {
        const uint32_t code = bytes[(i / 16 * 16 + t) * 4 + i % 4] >> i % 16 / 4 * 2 & 3u;
        assert_int_equal(code, sketch_code(sketch.data(), t, i));
        if (i >= d) {
          assert_int_equal(code, 0);
          continue;
        }
        const double stored = double{scale} * (2.0 * code - 3.0), x = double{row[i]};
        square += x * x;
        rest += (x - stored) * stored;
        error += (x - stored) * (x - stored);
      }
      assert_true(std::fabs(rest / square) <= 0x1p-8);  // least squares: what is lost is at right angles
      assert_true(error / square < 0.25);               // 0.119 for many channels; few may lie badly
    }
  }
}

void rotation_twice_is_a_factor(void**) {
  for (uint32_t d : {8u, 20u, 24u, 64u, 80u, 96u, 128u, 192u}) {
    Random random(d);
    const std::vector<float> x = random.normals(d);
    std::vector<float> y = x;
    const size_t block = hadamard_block(d);
    assert_true(d % block == 0 && d / block % 2 == 1);
    add_by_hadamard(y.data(), d);
    for (size_t first = 0; first < d; first += block) {  // blocks do not mix: the first channel is the sum of its block
      float sum = 0.0f;
      for (size_t i = 0; i < block; ++i) sum += x[first + i];
      assert_float_equal(y[first], sum, 1e-4f);
    }
    add_by_hadamard(y.data(), d);
    for (uint32_t i = 0; i < d; ++i) assert_float_equal(y[i], x[i] * static_cast<float>(block), 1e-3f);
  }
}

// Keys that are not finite, or whose squares are not, have a scale that says so; others of the page are as before.
void sketches_of_keys_that_are_not_finite(void**) {
  for (float bad : {INFINITY, -INFINITY, NAN, 3e38f, -1e30f}) {
    std::vector<std::vector<float>> keys(kPageTokens, std::vector<float>(64, 1.0f));
    const std::vector<uint16_t> good = sketch_of(keys);
    keys[5][17] = bad;
    const std::vector<uint16_t> sketch = sketch_of(keys);
    for (uint32_t t = 0; t < kPageTokens; ++t) {
      const size_t at = sketch.size() - kPageTokens + t;
      assert_int_equal(sketch[at], t == 5 ? kSketchInfinite : good[at]);
    }
  }
}

// One call of rope_append without rotation, of `n_tok` tokens from position `pos` on, into pages 0 and 1.
void append(const Backend& backend, PagedKv& kv, Random& random, uint32_t pos, uint32_t n_tok) {
  const uint32_t d = kv.view().head_dim, row = pos / kPageTokens, end = pos + n_tok;
  for (uint32_t p = 0; p < 2; ++p) {
    kv.first_pos(0, p) = p * kPageTokens;
    kv.len(0, p) = std::min(kPageTokens, end - std::min(end, p * kPageTokens));
  }
  kv.n_pages(0) = (end + kPageTokens - 1) / kPageTokens;
  std::vector<float> q = random.normals(size_t{n_tok} * d), k = random.normals(q.size()), v = random.normals(q.size());
  const std::vector<float> cos_sin = {1.0f, 0.0f};
  RopeAppendArgs a = {};
  a.q = q.data();
  a.k = k.data();
  a.v = v.data();
  a.cos_sin = cos_sin.data();
  a.n_tok = n_tok;
  a.n_heads = 1;
  a.pos = pos;
  a.kv = kv.view();
  a.append_row = &row;
  OpShapes shapes = page_shapes(1, 1, d, kv.capacity());
  shapes.max_tok = n_tok;
  Machine machine(backend, shapes);
  machine.check(backend.ops.rope_append(machine.cx(), a));
}

// In whatever chunks tokens arrive, after each chunk the digests are those of the pages so far (docs/algorithms.md,
// "Quest", invariant 6).
void minmax_grows_as_if_rebuilt(const Backend& backend) {
  for (uint32_t d : {8u, 20u, 64u, 80u, 96u, 128u, 256u}) {
    for (uint32_t chunk : {1u, 3u, 16u, 31u}) {
      PagedKv kv({.head_dim = d, .n_pages = 2}, 1);
      std::fill(kv.pool().begin(), kv.pool().end(), PagedKv::kNan);
      Random random(d + chunk);
      for (uint32_t pos = 0; pos < 2 * kPageTokens; pos += chunk) {
        append(backend, kv, random, pos, std::min(chunk, 2 * kPageTokens - pos));
        for (uint32_t row = 0; row < kv.n_pages(0); ++row) {
          std::vector<uint16_t> want(2 * d);
          digest_page(DigestKind::kMinMax, kv.key(0, row, 0), kv.len(0, row), d, want.data());
          assert_memory_equal(kv.view().digest_of(0, row), want.data(), want.size() * sizeof(uint16_t));
        }
      }
    }
  }
}

// rope_append must not touch digests of kinds that need whole pages.
void append_leaves_other_kinds_alone(const Backend& backend) {
  for (DigestKind kind : kAllDigests) {
    if (kind == DigestKind::kMinMax) continue;
    PagedKv kv({.head_dim = 64, .n_pages = 2, .digest = kind}, 1);
    Random random(2);
    append(backend, kv, random, 0, 20);
    append(backend, kv, random, 20, 1);
    for (uint16_t x : kv.digests()) assert_int_equal(x, PagedKv::kNan);
  }
}

}  // namespace
}  // namespace weir::test

int main() {
  using namespace weir::test;
  return run_group(
      "ops/page_digest", cases(),
      {{"page_digest__writes_full_pages_of_the_range", writes_full_pages_of_the_range},
       {"page_digest__minmax_grows_as_if_rebuilt", minmax_grows_as_if_rebuilt},
       {"page_digest__append_leaves_other_kinds_alone", append_leaves_other_kinds_alone}},
      {cmocka_unit_test(hand_computed_values), cmocka_unit_test(statistics_of_every_length),
       cmocka_unit_test(sketches_by_hand), cmocka_unit_test(sketches_pack_every_channel),
       cmocka_unit_test(rotation_twice_is_a_factor), cmocka_unit_test(sketches_of_keys_that_are_not_finite)});
}
