// ops: rope_append. Mirrors lib/ops/rope_append_ref.cpp, lib/cpu/rope_append.cpp.
#include <algorithm>

#include "tests/ops/paged_kv.h"

namespace weir::test {
namespace {

struct Spec {
  std::string name;
  uint32_t n_heads, n_kv_heads, head_dim, rope_dim;
  RopeLayout layout;
  uint32_t n_tok;
  uint32_t in_page;  // tokens that the first page already holds
  bool norm, sink, digests;
};

// cos and sin of position `pos` as models/rope.h computes them, base 10000.
void fill_angles(double pos, uint32_t rope_dim, float* cos_sin) {
  for (uint32_t i = 0; i < rope_dim / 2; ++i) {
    const double angle = pos * std::pow(10000.0, -2.0 * i / rope_dim);
    cos_sin[2 * i] = static_cast<float>(std::cos(angle));
    cos_sin[2 * i + 1] = static_cast<float>(std::sin(angle));
  }
}

std::vector<float> angles(uint32_t first_pos, uint32_t n_tok, uint32_t rope_dim) {
  std::vector<float> v(size_t{n_tok} * rope_dim);
  for (uint32_t i = 0; i < n_tok; ++i) fill_angles(first_pos + i, rope_dim, &v[size_t{i} * rope_dim]);
  return v;
}

std::vector<float> widened(const std::vector<uint16_t>& v) {
  std::vector<float> out;
  for (uint16_t x : v)
    out.push_back(x == PagedKv::kNan ? 12345.0f : bf16_to_f32(x));  // untouched: the same number on both sides
  return out;
}

OpShapes shapes_of(const Spec& s, uint32_t max_pages) {
  OpShapes shapes;
  shapes.n_threads = 3;
  shapes.max_tok = s.n_tok;
  shapes.n_heads = s.n_heads;
  shapes.n_kv_heads = s.n_kv_heads;
  shapes.head_dim = s.head_dim;
  shapes.max_pages = max_pages;
  return shapes;
}

std::vector<Output> run_spec(const Backend& backend, const Spec& s) {
  const uint32_t n_new = (s.in_page + s.n_tok + kPageTokens - 1) / kPageTokens;  // rows touched, after two full ones
  PagedKv kv({.n_kv_heads = s.n_kv_heads, .head_dim = s.head_dim, .n_pages = 2, .spare_rows = n_new + 1}, 5);
  std::vector<uint32_t> append_row(s.n_kv_heads, 2);
  for (uint32_t head = 0; head < s.n_kv_heads; ++head) {
    kv.n_pages(head) = 2 + n_new;
    for (uint32_t i = 0; i < n_new; ++i) {
      kv.first_pos(head, 2 + i) = 32 + i * kPageTokens;
      kv.len(head, 2 + i) = std::min(kPageTokens, s.in_page + s.n_tok - i * kPageTokens);
    }
  }
  // The digests of a half-full page are in use.
  Random random(9);
  for (uint32_t head = 0; s.in_page > 0 && head < s.n_kv_heads; ++head) {
    for (size_t i = 0; i < s.head_dim; ++i) {
      kv.digests()[kv.slot(head, 2) * 2 * s.head_dim + i] = f32_to_bf16(0.5f + random.normal());
      kv.digests()[(kv.slot(head, 2) * 2 + 1) * s.head_dim + i] = f32_to_bf16(-0.5f + random.normal());
    }
  }
  std::vector<float> q = random.normals(size_t{s.n_tok} * s.n_heads * s.head_dim), q_sink(q.size(), NAN);
  std::vector<float> k = random.normals(size_t{s.n_tok} * s.n_kv_heads * s.head_dim), v = random.normals(k.size());
  const std::vector<float> q_norm = random.normals(s.head_dim), k_norm = random.normals(s.head_dim);
  const uint32_t pos = 32 + s.in_page;
  const std::vector<float> cos_sin = angles(pos, s.n_tok, s.rope_dim),
                           cos_sin_sink = angles(pos / 2, s.n_tok, s.rope_dim);
  RopeAppendArgs a = {};
  a.q = q.data();
  a.q_sink = s.sink ? q_sink.data() : nullptr;
  a.k = k.data();
  a.v = v.data();
  a.q_norm = s.norm ? q_norm.data() : nullptr;
  a.k_norm = s.norm ? k_norm.data() : nullptr;
  a.norm_eps = 1e-6f;
  a.cos_sin = cos_sin.data();
  a.cos_sin_sink = s.sink ? cos_sin_sink.data() : nullptr;
  a.rope_dim = s.rope_dim;
  a.layout = s.layout;
  a.n_tok = s.n_tok;
  a.n_heads = s.n_heads;
  a.pos = pos;
  a.kv = kv.view();
  if (!s.digests) a.kv.digest = DigestKind::kNone;
  a.append_row = append_row.data();
  Machine machine(backend, shapes_of(s, kv.capacity()));
  machine.check(backend.ops.rope_append(machine.cx(), a));
  if (!s.sink) q_sink.clear();
  return {{"q", q}, {"q_sink", q_sink}, {"k", k}, {"pages", widened(kv.pool())}, {"digests", widened(kv.digests())}};
}

std::vector<OpCase> cases() {
  constexpr auto kAdjacent = RopeLayout::kAdjacent, kHalfSplit = RopeLayout::kHalfSplit;
  std::vector<Spec> specs = {
      {"decode_adjacent", 6, 2, 64, 64, kAdjacent, 1, 3, false, false, false},
      {"decode_half_split", 6, 2, 64, 64, kHalfSplit, 1, 3, false, false, false},
      {"decode_norm_sink_digests", 8, 2, 128, 128, kHalfSplit, 1, 7, true, true, true},
      {"first_token_of_a_page", 6, 2, 64, 64, kAdjacent, 1, 0, false, false, true},
      {"partial_adjacent", 4, 4, 80, 40, kAdjacent, 3, 15, false, true, true},
      {"partial_half_split", 4, 4, 80, 40, kHalfSplit, 3, 15, true, true, true},
      {"odd_head_dim", 3, 1, 70, 34, kHalfSplit, 20, 9, true, true, true},
      {"odd_head_dim_adjacent", 3, 1, 70, 70, kAdjacent, 20, 9, true, true, true},
      {"prefill", 6, 2, 64, 64, kAdjacent, 150, 0, false, false, true},
      {"prefill_into_open_page", 32, 8, 128, 128, kHalfSplit, 83, 11, true, true, true},
      {"prefill_without_digests", 8, 8, 96, 96, kAdjacent, 64, 1, false, false, false},
      {"head_dim_256", 4, 1, 256, 256, kHalfSplit, 33, 15, false, false, true},
  };
  for (uint32_t d : {8u, 24u, 40u, 72u, 112u, 160u, 192u, 256u}) {
    const std::string name = "head_dim_" + std::to_string(d);
    specs.push_back({name + "_decode", 7, 1, d, d, kHalfSplit, 1, 5, true, true, true});
    specs.push_back({name + "_prefill", 10, 2, d, d / 2, kAdjacent, 19, 9, true, false, true});
  }
  std::vector<OpCase> list;
  for (const Spec& s : specs) {
    list.push_back({"rope_append__" + s.name, [s](const Backend& b) { return run_spec(b, s); }, 0.0,
                    "the same roundings in the same order; norms are summed in f64", kContracted, kContractedReason});
  }
  return list;
}

// Rotates one head of `x` to position `pos` with the op and returns it (as the key, through a one-page cache).
std::vector<float> rotated(const Backend& backend, std::vector<float> x, const std::vector<float>& cos_sin) {
  const auto d = static_cast<uint32_t>(x.size());
  PagedKv kv({.n_kv_heads = 1, .head_dim = d, .n_pages = 1, .last_len = 1}, 1);
  const uint32_t append_row = 0;
  std::vector<float> q(x), v(x);
  RopeAppendArgs a = {};
  a.q = q.data();
  a.k = x.data();
  a.v = v.data();
  a.cos_sin = cos_sin.data();
  a.rope_dim = d;
  a.layout = RopeLayout::kHalfSplit;
  a.n_tok = 1;
  a.n_heads = 1;
  a.kv = kv.view();
  a.append_row = &append_row;
  Machine machine(backend, shapes_of({"", 1, 1, d, d, RopeLayout::kHalfSplit, 1, 0, false, false, false}, 1));
  machine.check(backend.ops.rope_append(machine.cx(), a));
  assert_memory_equal(q.data(), x.data(), d * sizeof(float));
  return x;
}

double dot(const std::vector<float>& x, const std::vector<float>& y) {
  double sum = 0.0;
  for (size_t i = 0; i < x.size(); ++i) sum += double{x[i]} * double{y[i]};
  return sum;
}

// A key stored at p0 + i and a query rotated by t' + (p0 - p0') score as the key moved to p0' + i and a query at t' do
// (docs/algorithms.md, "Positions when pages leave").
void rotation_shift_golden(const Backend& backend) {
  constexpr uint32_t d = 64;
  Random random(21);
  for (int round = 0; round < 20; ++round) {
    const std::vector<float> q = random.normals(d), k = random.normals(d);
    const uint32_t stored = 1000 + random.below(1000), in_cache = random.below(900),
                   query = in_cache + random.below(100);
    const uint32_t shift = stored - in_cache;
    const double shifted =
        dot(rotated(backend, q, angles(query + shift, 1, d)), rotated(backend, k, angles(stored, 1, d)));
    const double moved = dot(rotated(backend, q, angles(query, 1, d)), rotated(backend, k, angles(in_cache, 1, d)));
    assert_true(std::fabs(shifted - moved) < 2e-5);  // f32 rotations of vectors of length 8
  }
}

// A quarter turn: (1, 2) becomes (-2, 1) in both layouts.
void quarter_turn_golden(const Backend& backend) {
  const std::vector<float> y = rotated(backend, {1.0f, 2.0f}, {0.0f, 1.0f});
  assert_float_equal(y[0], -2.0f, 0.0f);
  assert_float_equal(y[1], 1.0f, 0.0f);
}

}  // namespace
}  // namespace weir::test

int main() {
  using namespace weir::test;
  return run_group("ops/rope_append", cases(),
                   {{"rope_append__rotation_shift_golden", rotation_shift_golden},
                    {"rope_append__quarter_turn_golden", quarter_turn_golden}});
}
