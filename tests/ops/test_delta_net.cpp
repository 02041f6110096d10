// ops: delta_net. Mirrors lib/ops/delta_net_ref.cpp, lib/cpu/delta_net.cpp, cuda/recurrent/delta_net.cu.
#include "tests/ops/recurrent_case.h"

namespace weir::test {
namespace {

struct Spec {
  const char* name;
  uint32_t n_tok, n_key_heads, n_heads, key_dim, value_dim, n_taps;
  bool grouped = false;      // the other mapping of heads
  bool interleaved = false;  // beta and alpha in one row, group by group
  bool bias = false;
  uint32_t current = 0;
  float gate_scale = 1.0f;
};

constexpr Spec kSpecs[] = {
    {.name = "one_token", .n_tok = 1, .n_key_heads = 2, .n_heads = 4, .key_dim = 128, .value_dim = 128, .n_taps = 4},
    {.name = "three_tokens", .n_tok = 3, .n_key_heads = 2, .n_heads = 6, .key_dim = 64, .value_dim = 64, .n_taps = 4},
    {.name = "chunk", .n_tok = 64, .n_key_heads = 1, .n_heads = 2, .key_dim = 32, .value_dim = 32, .n_taps = 4},
    {.name = "chunk_and_one", .n_tok = 65, .n_key_heads = 3, .n_heads = 3, .key_dim = 16, .value_dim = 16, .n_taps = 4},
    {.name = "prompt", .n_tok = 200, .n_key_heads = 2, .n_heads = 4, .key_dim = 128, .value_dim = 128, .n_taps = 4},
    {.name = "grouped",
     .n_tok = 65,
     .n_key_heads = 3,
     .n_heads = 9,
     .key_dim = 32,
     .value_dim = 32,
     .n_taps = 4,
     .grouped = true},
    {.name = "grouped_token",
     .n_tok = 1,
     .n_key_heads = 2,
     .n_heads = 8,
     .key_dim = 64,
     .value_dim = 128,
     .n_taps = 4,
     .grouped = true,
     .interleaved = true},
    {.name = "interleaved",
     .n_tok = 7,
     .n_key_heads = 2,
     .n_heads = 6,
     .key_dim = 32,
     .value_dim = 64,
     .n_taps = 4,
     .grouped = true,
     .interleaved = true},
    {.name = "interleaved_mod",
     .n_tok = 3,
     .n_key_heads = 3,
     .n_heads = 6,
     .key_dim = 64,
     .value_dim = 32,
     .n_taps = 4,
     .interleaved = true},
    {.name = "other_copy",
     .n_tok = 65,
     .n_key_heads = 2,
     .n_heads = 4,
     .key_dim = 64,
     .value_dim = 64,
     .n_taps = 4,
     .current = 1},
    {.name = "other_copy_token",
     .n_tok = 1,
     .n_key_heads = 2,
     .n_heads = 4,
     .key_dim = 64,
     .value_dim = 64,
     .n_taps = 4,
     .current = 1},
    {.name = "narrow_values", .n_tok = 3, .n_key_heads = 2, .n_heads = 2, .key_dim = 40, .value_dim = 24, .n_taps = 4},
    {.name = "narrow_keys", .n_tok = 65, .n_key_heads = 1, .n_heads = 3, .key_dim = 24, .value_dim = 40, .n_taps = 4},
    {.name = "narrow_token", .n_tok = 1, .n_key_heads = 1, .n_heads = 3, .key_dim = 24, .value_dim = 40, .n_taps = 3},
    {.name = "smallest", .n_tok = 5, .n_key_heads = 1, .n_heads = 1, .key_dim = 4, .value_dim = 4, .n_taps = 4},
    {.name = "smallest_token", .n_tok = 1, .n_key_heads = 1, .n_heads = 2, .key_dim = 4, .value_dim = 4, .n_taps = 2},
    {.name = "largest", .n_tok = 5, .n_key_heads = 1, .n_heads = 2, .key_dim = 256, .value_dim = 256, .n_taps = 4},
    {.name = "largest_token",
     .n_tok = 1,
     .n_key_heads = 1,
     .n_heads = 2,
     .key_dim = 256,
     .value_dim = 256,
     .n_taps = 4},
    {.name = "any_size", .n_tok = 7, .n_key_heads = 2, .n_heads = 4, .key_dim = 19, .value_dim = 13, .n_taps = 4},
    {.name = "one_tap", .n_tok = 9, .n_key_heads = 1, .n_heads = 2, .key_dim = 16, .value_dim = 32, .n_taps = 1},
    {.name = "one_tap_token", .n_tok = 1, .n_key_heads = 1, .n_heads = 2, .key_dim = 16, .value_dim = 32, .n_taps = 1},
    {.name = "two_taps", .n_tok = 9, .n_key_heads = 1, .n_heads = 2, .key_dim = 32, .value_dim = 16, .n_taps = 2},
    {.name = "three_taps", .n_tok = 2, .n_key_heads = 1, .n_heads = 2, .key_dim = 32, .value_dim = 32, .n_taps = 3},
    {.name = "eight_taps", .n_tok = 5, .n_key_heads = 1, .n_heads = 2, .key_dim = 32, .value_dim = 32, .n_taps = 8},
    {.name = "eight_taps_prompt",
     .n_tok = 65,
     .n_key_heads = 1,
     .n_heads = 2,
     .key_dim = 32,
     .value_dim = 32,
     .n_taps = 8,
     .bias = true},
    {.name = "most_taps", .n_tok = 70, .n_key_heads = 1, .n_heads = 1, .key_dim = 16, .value_dim = 16, .n_taps = 64},
    {.name = "bias",
     .n_tok = 3,
     .n_key_heads = 1,
     .n_heads = 3,
     .key_dim = 64,
     .value_dim = 64,
     .n_taps = 4,
     .bias = true},
    {.name = "bias_token",
     .n_tok = 1,
     .n_key_heads = 1,
     .n_heads = 3,
     .key_dim = 64,
     .value_dim = 64,
     .n_taps = 4,
     .bias = true},
    {.name = "large_gates",
     .n_tok = 65,
     .n_key_heads = 2,
     .n_heads = 4,
     .key_dim = 32,
     .value_dim = 32,
     .n_taps = 4,
     .gate_scale = 60.0f},
};

const Spec& spec_of(const char* name) {
  for (const Spec& s : kSpecs) {
    if (std::strcmp(s.name, name) == 0) return s;
  }
  fail_msg("there is no case %s", name);
  return kSpecs[0];
}

class DeltaCase {
 public:
  explicit DeltaCase(const Spec& s, uint64_t seed = 5)
      : spec(s),
        random(seed),
        conv(random, {2 * s.n_key_heads * s.key_dim + s.n_heads * s.value_dim, s.n_taps, s.bias}),
        state(random, conv.spec, size_t{s.n_heads} * s.key_dim * s.value_dim, s.current),
        m(random.normals(size_t{s.n_tok} * conv.spec.n_channels)),
        z(random.normals(size_t{s.n_tok} * s.n_heads * s.value_dim, s.gate_scale)),
        gates(random.normals(size_t{s.n_tok} * 2 * s.n_heads, s.gate_scale)),
        a(random.normals(s.n_heads)),
        dt_bias(random.normals(s.n_heads)),
        norm(random.normals(s.value_dim)),
        y(z.size(), NAN) {
    for (float& x : a) x = -0.05f - std::fabs(x);
  }

  uint32_t n_tok() const { return spec.n_tok; }

  OpShapes shapes() const {
    OpShapes shapes;
    shapes.n_threads = 3;
    shapes.max_tok = spec.n_tok;
    shapes.conv_channels = conv.spec.n_channels;
    shapes.recurrent_width = spec.n_heads * spec.value_dim;
    return shapes;
  }

  DeltaNetArgs args(float* input, uint32_t first, uint32_t n, const LayerState& at) {
    const size_t width = size_t{spec.n_heads} * spec.value_dim;
    const uint32_t per_key_head = spec.n_heads / spec.n_key_heads;
    DeltaNetArgs args = {};
    args.y = y.data() + first * width;
    args.m = input;
    args.z = z.data() + first * width;
    args.gate_stride = spec.interleaved ? 2 * spec.n_heads : spec.n_heads;
    args.gate_group = spec.interleaved ? per_key_head : spec.n_heads;
    args.group_stride = spec.interleaved ? 2 * per_key_head : 0;
    args.beta = gates.data() + size_t{first} * args.gate_stride;
    args.alpha = args.beta + (spec.interleaved ? per_key_head : size_t{spec.n_tok} * spec.n_heads);
    args.n_tok = n;
    args.n_key_heads = spec.n_key_heads;
    args.n_heads = spec.n_heads;
    args.key_dim = spec.key_dim;
    args.value_dim = spec.value_dim;
    args.grouped = spec.grouped;
    args.conv = conv.args();
    args.a = a.data();
    args.dt_bias = dt_bias.data();
    args.norm = norm.data();
    args.eps = 1e-6f;
    args.state = at;
    return args;
  }

  void run(const Backend& backend, uint32_t first, uint32_t n) {
    const size_t channels = conv.spec.n_channels;
    std::vector<float> input(m.begin() + static_cast<ptrdiff_t>(first * channels),
                             m.begin() + static_cast<ptrdiff_t>((first + n) * channels));
    Machine machine(backend, shapes());
    run_pass(state, [&](const LayerState& at) {
      machine.check(backend.ops.delta_net(machine.cx(), args(input.data(), first, n, at)));
    });
  }

  // First channel of value head h, and the key head that it reads.
  size_t value_channel(size_t h) const { return 2 * size_t{spec.n_key_heads} * spec.key_dim + h * spec.value_dim; }

  Spec spec;
  Random random;
  ConvCase conv;
  StateCase state;
  std::vector<float> m, z, gates, a, dt_bias, norm, y;
};

std::vector<OpCase> cases() {
  std::vector<OpCase> list;
  for (const Spec& s : kSpecs) {
    list.push_back({std::string("delta_net__") + s.name,
                    [&s](const Backend& b) { return run_at_once(b, DeltaCase(s)); }, kRecurrentNmse, kRecurrentReason,
                    kDeviceNmse, kDeviceReason, kDeviceNmse});
  }
  DeltaCase still(spec_of("chunk_and_one"));
  std::fill(still.m.begin(), still.m.end(), 0.0f);
  list.push_back({"delta_net__no_input", [still](const Backend& b) { return run_at_once(b, still); }, kRecurrentNmse,
                  kRecurrentReason, kDeviceNmse, kDeviceReason, kDeviceNmse});
  return list;
}

// One tap, so c = silu(m), which is m where m is 40 or more: q = (0.6, 0.8, 0, 0) / 2, k = (0, 1, 0, 0), v = (32, 64,
// 0, 0) + 0.5 * the row before. softplus(0) = log 2, so S is halved; sigmoid(0) = 1/2.
//   S^T k = (8, 0, 0, 0);  e = ((42, 64, 0, 0) - (8, 0, 0, 0)) / 2 = (17, 32, 0, 0);  S row 1 = (25, 32, 0, 0)
//   o = 0.3 (4, 0, 0, 0) + 0.4 (25, 32, 0, 0) = (11.2, 12.8, 0, 0), whose mean of squares is 72.32
void golden(const Backend& backend) {
  DeltaCase c({.name = "", .n_tok = 1, .n_key_heads = 1, .n_heads = 1, .key_dim = 4, .value_dim = 4, .n_taps = 2});
  c.m = {300, 400, 0, 0, 0, 500, 0, 0, 32, 64, 0, 0};
  for (size_t i = 0; i < c.m.size(); ++i) {
    c.conv.weight[2 * i] = 0.5f;
    c.conv.weight[2 * i + 1] = 1.0f;
  }
  c.state.rows() = {0, 0, 0, 0, 0, 0, 0, 0, 20, 0, 0, 0};
  c.state.sums() = {8, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  c.gates = {0, 0};
  c.a = {-1};
  c.dt_bias = {0};
  c.norm = {1.0f, 0.5f, 1.0f, 1.0f};
  c.z = {40, 50, 40, 40};
  const std::vector<float> m = c.m;
  c.run(backend, 0, 1);
  const float want_y[] = {11.2f / 8.50411670f * 40, 12.8f / 8.50411670f * 25, 0, 0};
  for (size_t i = 0; i < 4; ++i) assert_float_equal(c.y[i], want_y[i], 1e-4f);
  const float want_sums[] = {4, 0, 0, 0, 25, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  for (size_t i = 0; i < 16; ++i) assert_float_equal(c.state.sums()[i], want_sums[i], 2e-5f);
  assert_true(same_bits(c.state.rows(), m));
}

void passes(const Backend& backend) {
  for (const char* name : {"prompt", "chunk_and_one", "interleaved", "narrow_keys", "any_size", "one_tap",
                           "eight_taps_prompt", "most_taps"})
    passes_do_not_matter(backend, DeltaCase(spec_of(name)));
}

void copies(const Backend& backend) {
  for (const char* name : {"other_copy", "other_copy_token"}) {
    Spec s = spec_of(name);
    const DeltaCase second(s);
    s.current = 0;
    copies_are_alike(backend, DeltaCase(s), second);
  }
}

// A head that is not finite stays alone, whether its values, its gates or its sums are not.
void nan_stays_in_its_head(const Backend& backend) {
  for (const char* name : {"one_token", "grouped_token", "prompt", "grouped", "narrow_values"}) {
    const Spec& s = spec_of(name);
    const DeltaCase whole(s);
    const std::vector<Output> want = run_at_once(backend, whole);
    const size_t bad = s.n_heads - 2, n_sums = size_t{s.key_dim} * s.value_dim;
    for (int where = 0; where < 3; ++where) {
      DeltaCase c(s);
      if (where == 0) c.m[c.value_channel(bad) + s.value_dim - 1] = NAN;
      if (where == 1) c.dt_bias[bad] = NAN;
      if (where == 2) c.state.sums()[bad * n_sums] = INFINITY;
      const std::vector<Output> got = run_at_once(backend, c);
      for (size_t h = 0; h < s.n_heads; ++h) {
        const bool same =
            same_part(got[0].values, want[0].values, c.y.size() / s.n_tok, h * s.value_dim, s.value_dim) &&
            same_part(got[2].values, want[2].values, s.n_heads * n_sums, h * n_sums, n_sums);
        assert_true(same == (h != bad));
      }
    }
  }
}

// NaN in a key head reaches the value heads that read it, and those alone: this fixes the mapping.
void key_heads_serve_their_value_heads(const Backend& backend) {
  for (const char* name : {"one_token", "grouped_token", "grouped", "interleaved_mod", "prompt"}) {
    const Spec& s = spec_of(name);
    for (uint32_t key = 0; key < s.n_key_heads; ++key) {
      DeltaCase c(s);
      c.m[(s.n_key_heads + key) * s.key_dim + 1] = NAN;
      const std::vector<Output> got = run_at_once(backend, c);
      for (uint32_t h = 0; h < s.n_heads; ++h) {
        const uint32_t of = s.grouped ? h / (s.n_heads / s.n_key_heads) : h % s.n_key_heads;
        assert_true(std::isnan(got[0].values[h * s.value_dim]) == (of == key));
      }
    }
  }
}

// Each head decays: after many tokens the error of the sums, which are kept in f32, is what it was after a few.
void error_stays_flat(const Backend& backend) {
  const Spec s = {
      .name = "", .n_tok = 250, .n_key_heads = 1, .n_heads = 2, .key_dim = 16, .value_dim = 16, .n_taps = 4};
  DeltaCase c(s);
  c.a = {-0.001f, -0.3f};  // one forgets slowly
  const size_t n = s.key_dim, channels = c.conv.spec.n_channels;
  std::vector<double> sums(c.state.sums().begin(), c.state.sums().end());
  for (uint32_t pass = 0; pass < 40; ++pass) {
    std::vector<float> rows = c.state.rows();
    rows.insert(rows.end(), c.m.begin(), c.m.end());
    c.run(backend, 0, s.n_tok);
    for (size_t t = 0; t < s.n_tok; ++t) {
      std::vector<double> x(channels);
      for (size_t i = 0; i < channels; ++i) {
        for (size_t j = 0; j < 4; ++j) x[i] += double{c.conv.weight[i * 4 + j]} * double{rows[(t + j) * channels + i]};
        x[i] /= 1.0 + std::exp(-x[i]);
      }
      double length = 1e-6;
      for (size_t i = 0; i < n; ++i) length += x[n + i] * x[n + i];
      for (size_t h = 0; h < 2; ++h) {
        const double alpha = double{c.gates[(s.n_tok + t) * 2 + h]} + double{c.dt_bias[h]};
        const double decay = std::exp(double{c.a[h]} * std::log1p(std::exp(alpha)));
        const double beta = 1.0 / (1.0 + std::exp(-double{c.gates[t * 2 + h]}));
        for (size_t j = 0; j < n; ++j) {
          double* column = sums.data() + h * n * n + j;
          double seen = 0.0;
          for (size_t i = 0; i < n; ++i) seen += (column[i * n] *= decay) * x[n + i] / std::sqrt(length);
          const double e = beta * (x[2 * n + h * n + j] - seen);
          for (size_t i = 0; i < n; ++i) column[i * n] += e * x[n + i] / std::sqrt(length);
        }
      }
    }
    double error = 0.0, power = 0.0;
    for (size_t i = 0; i < sums.size(); ++i) {
      error += std::pow(double{c.state.sums()[i]} - sums[i], 2);
      power += sums[i] * sums[i];
    }
    assert_true(error <= 1e-10 * power);
  }
}

}  // namespace
}  // namespace weir::test

int main() {
  using namespace weir::test;
  return run_group("ops/delta_net", cases(),
                   {{"delta_net__golden", golden},
                    {"delta_net__passes_do_not_matter", passes},
                    {"delta_net__copies_are_alike", copies},
                    {"delta_net__nan_stays_in_its_head", nan_stays_in_its_head},
                    {"delta_net__key_heads_serve_their_value_heads", key_heads_serve_their_value_heads},
                    {"delta_net__error_stays_flat", error_stays_flat}});
}
