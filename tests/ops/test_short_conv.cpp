// ops: short_conv. Mirrors lib/ops/short_conv_ref.cpp, lib/cpu/short_conv.cpp, cuda/recurrent/short_conv.cu.
#include "tests/ops/short_conv_case.h"

namespace weir::test {
namespace {

std::vector<OpCase> cases() {
  std::vector<OpCase> list;
  for (const ShortConvSpec& s : kShortConvSpecs) {
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
  for (const ShortConvSpec& s : kShortConvSpecs) {
    if (s.n_tok > 1) passes_do_not_matter(backend, ShortConvCase(s));
  }
}

void nan_stays_in_its_channel(const Backend& backend) {
  for (const ShortConvSpec& s : kShortConvSpecs) {
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
