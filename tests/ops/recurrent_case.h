// What the tests of recurrent layers share: the two copies of a layer's state, its convolution, and the properties that
// hold for every op which has them. A case has `y`, `state`, n_tok() and run(backend, first, n), which computes tokens
// [first, first + n) into y and makes what was written the current state.
#pragma once

#include "tests/ops/harness.h"

namespace weir::test {

struct ConvSpec {
  uint32_t n_channels, n_taps;
  bool bias = false;
};

// Weights that keep a normal input near 1.
class ConvCase {
 public:
  ConvCase(Random& random, const ConvSpec& s)
      : spec(s),
        weight(random.normals(size_t{s.n_channels} * s.n_taps, 1.0f / std::sqrt(static_cast<float>(s.n_taps)))),
        bias(random.normals(s.n_channels, 0.5f)) {}
  ConvArgs args() const { return {weight.data(), spec.bias ? bias.data() : nullptr, spec.n_channels, spec.n_taps}; }

  ConvSpec spec;
  std::vector<float> weight, bias;
};

// The copy that is not current is NaN, so that an op which reads it, or leaves out a part of it, is detected.
class StateCase {
 public:
  StateCase(Random& random, const ConvSpec& conv, size_t n_sums, uint32_t current) : current_(current) {
    rows_[current] = random.normals(size_t{conv.n_taps - 1} * conv.n_channels);
    sums_[current] = random.normals(n_sums, 0.3f);
    spoil();
  }
  LayerState args() {
    LayerState s;
    for (size_t i = 0; i < 2; ++i) {
      s.rows[i] = rows_[i].empty() ? nullptr : rows_[i].data();
      s.sums[i] = sums_[i].empty() ? nullptr : sums_[i].data();
    }
    s.current = &current_;
    return s;
  }
  // After a pass: what it wrote becomes current.
  void turn() {
    current_ ^= 1;
    spoil();
  }
  std::vector<float>& rows() { return rows_[current_]; }
  std::vector<float>& sums() { return sums_[current_]; }

 private:
  void spoil() {
    rows_[current_ ^ 1].assign(rows_[current_].size(), NAN);
    sums_[current_ ^ 1].assign(sums_[current_].size(), NAN);
  }
  std::vector<float> rows_[2], sums_[2];
  uint32_t current_;
};

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

// Runs `call` with the state's arguments. The current state must stay as it is, bit for bit.
template <class Call>
void run_pass(StateCase& state, const Call& call) {
  const std::vector<float> rows = state.rows(), sums = state.sums();
  call(state.args());
  assert_true(same_bits(state.rows(), rows));
  assert_true(same_bits(state.sums(), sums));
  state.turn();
}

// All that a case computes, in passes of at most `n` tokens.
template <class Case>
std::vector<Output> run_in_passes(const Backend& backend, Case c, uint32_t n) {
  for (uint32_t first = 0; first < c.n_tok(); first += n) c.run(backend, first, std::min(n, c.n_tok() - first));
  std::vector<Output> outputs = {{"y", c.y}};
  if (!c.state.rows().empty()) outputs.push_back({"rows", c.state.rows()});
  if (!c.state.sums().empty()) outputs.push_back({"sums", c.state.sums()});
  return outputs;
}

template <class Case>
std::vector<Output> run_at_once(const Backend& backend, const Case& c) {
  return run_in_passes(backend, c, c.n_tok());
}

// Whether the passes do not matter: a prompt in chunks, and token by token, is the prompt at once. On the CPU the bits
// are the same; on a device each may have kernels of its own, which sum in another order.
inline constexpr double kOtherPassesNmse = 1e-10;
template <class Case>
void passes_do_not_matter(const Backend& backend, const Case& c) {
  const std::vector<Output> want = run_at_once(backend, c);
  for (uint32_t n : {1u, 2u, 3u, 7u, 64u, 65u}) {
    const std::vector<Output> got = run_in_passes(backend, c, n);
    assert_int_equal(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      const std::string what = std::string(want[i].name) + " in passes of " + std::to_string(n);
      const double bound = backend.device == WEIR_DEVICE_CPU ? 0.0 : kOtherPassesNmse;
      assert_true(close_enough(what.c_str(), got[i].values.data(), want[i].values.data(), got[i].values.size(), bound));
    }
  }
}

// Which of the two copies is current does not matter.
template <class Case>
void copies_are_alike(const Backend& backend, const Case& first, const Case& second) {
  const std::vector<Output> a = run_at_once(backend, first), b = run_at_once(backend, second);
  for (size_t i = 0; i < a.size(); ++i) assert_true(same_bits(a[i].values, b[i].values));
}

// Compares part of an output: elements [first, first + n) of each `stride`.
inline bool same_part(const std::vector<float>& a, const std::vector<float>& b, size_t stride, size_t first, size_t n) {
  for (size_t at = first; at + n <= a.size(); at += stride) {
    if (std::memcmp(a.data() + at, b.data() + at, n * sizeof(float)) != 0) return false;
  }
  return true;
}

// The outputs of recurrent layers beside the reference's.
inline constexpr double kRecurrentNmse = 1e-12, kDeviceNmse = 1e-11;
inline constexpr char kRecurrentReason[] =
    "the reference computes in f64; sums of products in f32 here, and another exp";
inline constexpr char kDeviceReason[] = "squares and gates in f32, too; an exp of two units in the last digit";

}  // namespace weir::test
