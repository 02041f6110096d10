// Cases of delta_net, for tests of the op and of kernels.
#pragma once

#include "tests/ops/recurrent_case.h"

namespace weir::test {

struct DeltaSpec {
  const char* name;
  uint32_t n_tok, n_key_heads, n_heads, key_dim, value_dim, n_taps;
  bool grouped = false;      // the other mapping of heads
  bool interleaved = false;  // beta and alpha in one row, group by group
  bool bias = false;
  uint32_t current = 0;
  float gate_scale = 1.0f;
};

inline constexpr DeltaSpec kDeltaSpecs[] = {
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

inline const DeltaSpec& delta_spec(const char* name) {
  for (const DeltaSpec& s : kDeltaSpecs) {
    if (std::strcmp(s.name, name) == 0) return s;
  }
  fail_msg("there is no case %s", name);
  return kDeltaSpecs[0];
}

class DeltaCase {
 public:
  explicit DeltaCase(const DeltaSpec& s, uint64_t seed = 5)
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

  DeltaSpec spec;
  Random random;
  ConvCase conv;
  StateCase state;
  std::vector<float> m, z, gates, a, dt_bias, norm, y;
};

}  // namespace weir::test
