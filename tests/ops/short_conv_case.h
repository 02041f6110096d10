// Cases of short_conv, for tests of the op and of kernels.
#pragma once

#include "tests/ops/recurrent_case.h"

namespace weir::test {

struct ShortConvSpec {
  const char* name;
  uint32_t n_tok, n_channels, n_taps = 3;
  bool bias = false;
  uint32_t current = 0;
};

inline constexpr ShortConvSpec kShortConvSpecs[] = {
    {.name = "one_token", .n_tok = 1, .n_channels = 2048},
    {.name = "two_tokens", .n_tok = 2, .n_channels = 384},
    {.name = "three_tokens", .n_tok = 3, .n_channels = 384},
    {.name = "chunk", .n_tok = 64, .n_channels = 256},
    {.name = "chunk_and_one", .n_tok = 65, .n_channels = 256, .current = 1},
    {.name = "prompt", .n_tok = 200, .n_channels = 1024},
    {.name = "other_copy_token", .n_tok = 1, .n_channels = 384, .current = 1},
    {.name = "bias", .n_tok = 9, .n_channels = 384, .bias = true},
    {.name = "bias_token", .n_tok = 1, .n_channels = 384, .bias = true},
    {.name = "one_channel", .n_tok = 5, .n_channels = 1},
    {.name = "odd_channels", .n_tok = 5, .n_channels = 1037},
    {.name = "odd_channels_token", .n_tok = 1, .n_channels = 1037},
    {.name = "one_tap", .n_tok = 9, .n_channels = 96, .n_taps = 1},
    {.name = "one_tap_token", .n_tok = 1, .n_channels = 96, .n_taps = 1},
    {.name = "two_taps", .n_tok = 9, .n_channels = 96, .n_taps = 2},
    {.name = "four_taps", .n_tok = 3, .n_channels = 96, .n_taps = 4},
    {.name = "eight_taps", .n_tok = 5, .n_channels = 96, .n_taps = 8},
    {.name = "eight_taps_prompt", .n_tok = 65, .n_channels = 96, .n_taps = 8},
    {.name = "most_taps", .n_tok = 70, .n_channels = 40, .n_taps = 64},
    {.name = "most_taps_token", .n_tok = 1, .n_channels = 40, .n_taps = 64},
};

class ShortConvCase {
 public:
  explicit ShortConvCase(const ShortConvSpec& s, uint64_t seed = 5)
      : spec(s),
        random(seed),
        conv(random, {s.n_channels, s.n_taps, s.bias}),
        state(random, conv.spec, 0, s.current),
        x(random.normals(size_t{s.n_tok} * 3 * s.n_channels)),
        y(size_t{s.n_tok} * s.n_channels, NAN) {}

  uint32_t n_tok() const { return spec.n_tok; }

  void run(const Backend& backend, uint32_t first, uint32_t n) {
    const size_t width = spec.n_channels;
    std::vector<float> input(x.begin() + static_cast<ptrdiff_t>(first * 3 * width),
                             x.begin() + static_cast<ptrdiff_t>((first + n) * 3 * width));
    OpShapes shapes;
    shapes.n_threads = 3;
    shapes.max_tok = spec.n_tok;
    shapes.conv_channels = shapes.recurrent_width = spec.n_channels;
    Machine machine(backend, shapes);
    run_pass(state, [&](const LayerState& at) {
      machine.check(backend.ops.short_conv(machine.cx(), {y.data() + first * width, input.data(), n, conv.args(), at}));
    });
  }

  ShortConvSpec spec;
  Random random;
  ConvCase conv;
  StateCase state;
  std::vector<float> x, y;
};

}  // namespace weir::test
