// Cases of mamba2, for tests of the op and of kernels.
#pragma once

#include "tests/ops/recurrent_case.h"

namespace weir::test {

struct MambaSpec {
  const char* name;
  uint32_t n_tok, n_groups, n_heads, key_dim, value_dim, n_taps = 4;
  bool bias = true;
  uint32_t current = 0;
  float gate_scale = 1.0f;
};

inline constexpr MambaSpec kMambaSpecs[] = {
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

inline const MambaSpec& mamba_spec(const char* name) {
  for (const MambaSpec& s : kMambaSpecs) {
    if (std::strcmp(s.name, name) == 0) return s;
  }
  fail_msg("there is no case %s", name);
  return kMambaSpecs[0];
}

class MambaCase {
 public:
  explicit MambaCase(const MambaSpec& s, uint64_t seed = 5)
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

  MambaSpec spec;
  Random random;
  ConvCase conv;
  StateCase state;
  std::vector<float> x, a, dt_bias, skips, norm, y;
};

}  // namespace weir::test
