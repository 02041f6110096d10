// ops: short_conv. Mirrors lib/ops/short_conv_ref.cpp, lib/cpu/short_conv.cpp, cuda/recurrent/short_conv.cu.
#include "tests/ops/recurrent_case.h"

namespace weir::test {
namespace {

struct Spec {
  const char* name;
  uint32_t n_tok, n_channels, n_taps = 3;
  bool bias = false;
  uint32_t current = 0;
};

constexpr Spec kSpecs[] = {
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
  explicit ShortConvCase(const Spec& s, uint64_t seed = 5)
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

  Spec spec;
  Random random;
  ConvCase conv;
  StateCase state;
  std::vector<float> x, y;
};

std::vector<OpCase> cases() {
  std::vector<OpCase> list;
  for (const Spec& s : kSpecs) {
    list.push_back({std::string("short_conv__") + s.name,
                    [&s](const Backend& b) { return run_at_once(b, ShortConvCase(s)); }, 1e-13,
                    "the reference computes in f64; sums of a few products in f32"});
  }
  return list;
}

// Channel 0: b v = 6, 20; channel 1: 1, 2. y = c (w0 oldest + w1 last + w2 this).
void golden(const Backend& backend) {
  ShortConvCase c({.name = "", .n_tok = 2, .n_channels = 2, .n_taps = 3});
  c.conv.weight = {1, 10, 100, 0.5f, 0.25f, 2};
  c.state.rows() = {3, 8, 5, 4};  // 3 and 8 are the oldest
  c.x = {/*b*/ 2, 1, /*c*/ 1, 2, /*v*/ 3, 1, /*b*/ 4, 2, /*c*/ -1, 10, /*v*/ 5, 1};
  c.run(backend, 0, 2);
  // 3 + 50 + 600, 2 (4 + 1 + 2); -(5 + 60 + 2000), 10 (2 + 0.25 + 4)
  const float want[] = {653, 14, -2065, 62.5f}, rows[] = {6, 1, 20, 2};
  for (size_t i = 0; i < 4; ++i) assert_float_equal(c.y[i], want[i], 0.0f);
  for (size_t i = 0; i < 4; ++i) assert_float_equal(c.state.rows()[i], rows[i], 0.0f);
}

void passes(const Backend& backend) {
  for (const Spec& s : kSpecs) {
    if (s.n_tok > 1) passes_do_not_matter(backend, ShortConvCase(s));
  }
}

void nan_stays_in_its_channel(const Backend& backend) {
  for (const Spec& s : kSpecs) {
    if (s.n_channels < 96) continue;
    const std::vector<Output> want = run_at_once(backend, ShortConvCase(s));
    ShortConvCase c(s);
    const size_t bad = s.n_channels / 2 + 1;
    c.x[bad] = NAN;
    const std::vector<Output> got = run_at_once(backend, c);
    assert_true(std::isnan(got[0].values[bad]));
    for (size_t i = 0; i < want[0].values.size(); ++i)
      assert_true(i % s.n_channels == bad || got[0].values[i] == want[0].values[i]);
  }
}

}  // namespace
}  // namespace weir::test

int main() {
  using namespace weir::test;
  return run_group("ops/short_conv", cases(),
                   {{"short_conv__golden", golden},
                    {"short_conv__passes_do_not_matter", passes},
                    {"short_conv__nan_stays_in_its_channel", nan_stays_in_its_channel}});
}
