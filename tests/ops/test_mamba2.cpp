// ops: mamba2. Mirrors lib/ops/mamba2_ref.cpp, lib/cpu/mamba2.cpp, cuda/recurrent/mamba2.cu.
#include "tests/ops/recurrent_case.h"

namespace weir::test {
namespace {

struct Spec {
  const char* name;
  uint32_t n_tok, n_groups, n_heads, key_dim, value_dim, n_taps = 4;
  bool bias = true;
  uint32_t current = 0;
  float gate_scale = 1.0f;
};

constexpr Spec kSpecs[] = {
    {.name = "one_token", .n_tok = 1, .n_groups = 2, .n_heads = 4, .key_dim = 128, .value_dim = 64},
    {.name = "one_group_token", .n_tok = 1, .n_groups = 1, .n_heads = 8, .key_dim = 128, .value_dim = 64},
    {.name = "three_tokens", .n_tok = 3, .n_groups = 3, .n_heads = 6, .key_dim = 64, .value_dim = 32},
    {.name = "chunk", .n_tok = 64, .n_groups = 1, .n_heads = 2, .key_dim = 32, .value_dim = 32},
    {.name = "chunk_and_one", .n_tok = 65, .n_groups = 3, .n_heads = 3, .key_dim = 16, .value_dim = 16},
    {.name = "prompt", .n_tok = 200, .n_groups = 2, .n_heads = 4, .key_dim = 128, .value_dim = 64},
    {.name = "one_group", .n_tok = 65, .n_groups = 1, .n_heads = 6, .key_dim = 64, .value_dim = 64},
    {.name = "wide_values", .n_tok = 7, .n_groups = 1, .n_heads = 2, .key_dim = 16, .value_dim = 128},
    {.name = "other_copy", .n_tok = 65, .n_groups = 2, .n_heads = 4, .key_dim = 64, .value_dim = 64, .current = 1},
    {.name = "other_copy_token", .n_tok = 1, .n_groups = 2, .n_heads = 4, .key_dim = 64, .value_dim = 64, .current = 1},
    {.name = "narrow_values", .n_tok = 3, .n_groups = 2, .n_heads = 2, .key_dim = 40, .value_dim = 24},
    {.name = "narrow_keys", .n_tok = 65, .n_groups = 1, .n_heads = 3, .key_dim = 24, .value_dim = 40},
    {.name = "narrow_token", .n_tok = 1, .n_groups = 1, .n_heads = 3, .key_dim = 24, .value_dim = 40, .n_taps = 3},
    {.name = "smallest", .n_tok = 5, .n_groups = 1, .n_heads = 1, .key_dim = 4, .value_dim = 4},
    {.name = "smallest_token", .n_tok = 1, .n_groups = 1, .n_heads = 2, .key_dim = 4, .value_dim = 4, .n_taps = 2},
    {.name = "largest", .n_tok = 5, .n_groups = 1, .n_heads = 2, .key_dim = 256, .value_dim = 256},
    {.name = "largest_token", .n_tok = 1, .n_groups = 1, .n_heads = 2, .key_dim = 256, .value_dim = 256},
    {.name = "any_size", .n_tok = 7, .n_groups = 2, .n_heads = 4, .key_dim = 19, .value_dim = 13},
    {.name = "one_tap", .n_tok = 9, .n_groups = 1, .n_heads = 2, .key_dim = 16, .value_dim = 32, .n_taps = 1},
    {.name = "one_tap_token", .n_tok = 1, .n_groups = 1, .n_heads = 2, .key_dim = 16, .value_dim = 32, .n_taps = 1},
    {.name = "two_taps", .n_tok = 9, .n_groups = 1, .n_heads = 2, .key_dim = 32, .value_dim = 16, .n_taps = 2},
    {.name = "three_taps", .n_tok = 2, .n_groups = 1, .n_heads = 2, .key_dim = 32, .value_dim = 32, .n_taps = 3},
    {.name = "eight_taps", .n_tok = 5, .n_groups = 1, .n_heads = 2, .key_dim = 32, .value_dim = 32, .n_taps = 8},
    {.name = "eight_taps_prompt",
     .n_tok = 65,
     .n_groups = 1,
     .n_heads = 2,
     .key_dim = 32,
     .value_dim = 32,
     .n_taps = 8},
    {.name = "most_taps", .n_tok = 70, .n_groups = 1, .n_heads = 1, .key_dim = 16, .value_dim = 16, .n_taps = 64},
    {.name = "no_bias", .n_tok = 3, .n_groups = 1, .n_heads = 3, .key_dim = 64, .value_dim = 64, .bias = false},
    {.name = "no_bias_token", .n_tok = 1, .n_groups = 1, .n_heads = 3, .key_dim = 64, .value_dim = 64, .bias = false},
    {.name = "large_gates",
     .n_tok = 65,
     .n_groups = 2,
     .n_heads = 4,
     .key_dim = 32,
     .value_dim = 32,
     .gate_scale = 60.0f},
};

const Spec& spec_of(const char* name) {
  for (const Spec& s : kSpecs) {
    if (std::strcmp(s.name, name) == 0) return s;
  }
  fail_msg("there is no case %s", name);
  return kSpecs[0];
}

class MambaCase {
 public:
  explicit MambaCase(const Spec& s, uint64_t seed = 5)
      : spec(s),
        random(seed),
        conv(random, {s.n_heads * s.value_dim + 2 * s.n_groups * s.key_dim, s.n_taps, s.bias}),
        state(random, conv.spec, size_t{s.n_heads} * s.key_dim * s.value_dim, s.current),
        x(random.normals(s.n_tok * width())),
        a(random.normals(s.n_heads)),
        dt_bias(random.normals(s.n_heads)),
        skips(random.normals(s.n_heads)),
        norm(random.normals(inner())),
        y(s.n_tok * inner(), NAN) {
    for (float& v : a) v = -0.05f - std::fabs(v);
    for (size_t t = 0; t < s.n_tok; ++t) {
      float* row = x.data() + t * width();
      for (size_t i = 0; i < width(); ++i) {
        if (i < inner() || i >= width() - s.n_heads) row[i] *= s.gate_scale;
      }
    }
  }

  uint32_t n_tok() const { return spec.n_tok; }
  size_t inner() const { return size_t{spec.n_heads} * spec.value_dim; }
  size_t width() const { return inner() + conv.spec.n_channels + spec.n_heads; }

  void run(const Backend& backend, uint32_t first, uint32_t n) {
    std::vector<float> input(x.begin() + static_cast<ptrdiff_t>(first * width()),
                             x.begin() + static_cast<ptrdiff_t>((first + n) * width()));
    OpShapes shapes;
    shapes.n_threads = 3;
    shapes.max_tok = spec.n_tok;
    shapes.conv_channels = conv.spec.n_channels;
    shapes.recurrent_width = static_cast<uint32_t>(inner());
    Machine machine(backend, shapes);
    run_pass(state, [&](const LayerState& at) {
      machine.check(backend.ops.mamba2(
          machine.cx(), {y.data() + first * inner(), input.data(), n, spec.n_groups, spec.n_heads, spec.key_dim,
                         spec.value_dim, conv.args(), a.data(), dt_bias.data(), skips.data(), norm.data(), 1e-5f, at}));
    });
  }

  Spec spec;
  Random random;
  ConvCase conv;
  StateCase state;
  std::vector<float> x, a, dt_bias, skips, norm, y;
};

std::vector<OpCase> cases() {
  std::vector<OpCase> list;
  for (const Spec& s : kSpecs) {
    list.push_back({std::string("mamba2__") + s.name, [&s](const Backend& b) { return run_at_once(b, MambaCase(s)); },
                    kRecurrentNmse, kRecurrentReason, kDeviceNmse, kDeviceReason, kDeviceNmse});
  }
  return list;
}

// One tap with weight 1, so the convolution's output is its input where that is 40 or more, or 0.
// softplus(0) = log 2 = d. Head 0: a = -1, S is halved; head 1: a = -2, S is quartered. B = (50, 0, 0, 0) adds
// 50 d v to the first row. C = (0, 100, 0, 0): o = 100 * row 1 + skip v.
//   head 0: row 1 = (4, 2, 0, 0) / 2: o = (200, 100, 0, 0) + 2 (40, 0, 0, 0) = (280, 100, 0, 0), gates 40: x 40
//   head 1: row 1 = (4, 2, 0, 0) / 4: o = (100, 50, 0, 0) + 1 (0, 60, 0, 0)  = (100, 110, 0, 0), gates 50: x 50
// (11200, 4000, 0, 0, 5000, 5500, 0, 0): mean of squares 24586250, root 4958.452...
void golden(const Backend& backend) {
  MambaCase c({.name = "", .n_tok = 1, .n_groups = 1, .n_heads = 2, .key_dim = 4, .value_dim = 4, .n_taps = 1});
  c.conv.weight.assign(16, 1.0f);
  c.conv.bias.assign(16, 0.0f);
  c.x = {40, 40, 40, 40, 50, 50, 50, 50, /*v*/ 40, 0, 0, 0, 0, 60, 0, 0, /*B*/ 50, 0, 0, 0, /*C*/ 0, 100, 0, 0, 0, 0};
  c.a = {-1, -2};
  c.dt_bias = {0, 0};
  c.skips = {2, 1};
  c.norm = {1, 1, 1, 1, 2, 1, 1, 1};
  c.state.sums() = {1, 0, 0, 0, 4, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 4, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  c.run(backend, 0, 1);
  const float root = 4958.45238f;
  const float want_y[] = {11200 / root, 4000 / root, 0, 0, 10000 / root, 5500 / root, 0, 0};
  for (size_t i = 0; i < 8; ++i) assert_float_equal(c.y[i], want_y[i], 1e-5f);
  const float added = 2000 * 0.693147181f;
  const float want[] = {0.5f + added, 0, 0, 0, 2,    1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0.25f,
                        1.5f * added, 0, 0, 1, 0.5f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  for (size_t i = 0; i < 32; ++i) assert_float_equal(c.state.sums()[i], want[i], 2e-6f * (1.0f + std::fabs(want[i])));
}

void passes(const Backend& backend) {
  for (const char* name :
       {"prompt", "chunk_and_one", "one_group", "narrow_keys", "any_size", "one_tap", "eight_taps_prompt", "most_taps"})
    passes_do_not_matter(backend, MambaCase(spec_of(name)));
}

void copies(const Backend& backend) {
  for (const char* name : {"other_copy", "other_copy_token"}) {
    Spec s = spec_of(name);
    const MambaCase second(s);
    s.current = 0;
    copies_are_alike(backend, MambaCase(s), second);
  }
}

// A head that is not finite: its sums alone, and the outputs of the group that its norm is taken over.
void nan_stays_in_its_group(const Backend& backend) {
  for (const char* name : {"one_token", "three_tokens", "prompt", "narrow_values"}) {
    const Spec& s = spec_of(name);
    const MambaCase whole(s);
    const std::vector<Output> want = run_at_once(backend, whole);
    const size_t bad = s.n_heads - 2, n_sums = size_t{s.key_dim} * s.value_dim, group = s.n_heads / s.n_groups;
    for (int where = 0; where < 4; ++where) {
      MambaCase c(s);
      if (where == 0) c.x[c.inner() + bad * s.value_dim + s.value_dim - 1] = NAN;
      if (where == 1) c.x[c.width() - s.n_heads + bad] = NAN;
      if (where == 2) c.a[bad] = NAN;
      if (where == 3) c.state.sums()[bad * n_sums] = INFINITY;
      const std::vector<Output> got = run_at_once(backend, c);
      for (size_t h = 0; h < s.n_heads; ++h) {
        assert_true(same_part(got[2].values, want[2].values, s.n_heads * n_sums, h * n_sums, n_sums) == (h != bad));
        assert_true(same_part(got[0].values, want[0].values, c.inner(), h * s.value_dim, s.value_dim) ==
                    (h / group != bad / group));
      }
    }
  }
}

// NaN in B of a group reaches the heads of that group alone: heads lie in blocks.
void groups_serve_their_heads(const Backend& backend) {
  for (const char* name : {"one_token", "three_tokens", "prompt"}) {
    const Spec& s = spec_of(name);
    for (uint32_t group = 0; group < s.n_groups; ++group) {
      MambaCase c(s);
      c.x[2 * c.inner() + group * s.key_dim] = NAN;
      const std::vector<Output> got = run_at_once(backend, c);
      for (uint32_t h = 0; h < s.n_heads; ++h)
        assert_true(std::isnan(got[0].values[h * s.value_dim]) == (h / (s.n_heads / s.n_groups) == group));
    }
  }
}

}  // namespace
}  // namespace weir::test

int main() {
  using namespace weir::test;
  return run_group("ops/mamba2", cases(),
                   {{"mamba2__golden", golden},
                    {"mamba2__passes_do_not_matter", passes},
                    {"mamba2__copies_are_alike", copies},
                    {"mamba2__nan_stays_in_its_group", nan_stays_in_its_group},
                    {"mamba2__groups_serve_their_heads", groups_serve_their_heads}});
}
