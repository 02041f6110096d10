// ops: delta_net. Mirrors lib/ops/delta_net_ref.cpp, lib/cpu/delta_net.cpp, cuda/recurrent/delta_net.cu.
#include "tests/ops/delta_net_case.h"

namespace weir::test {
namespace {

std::vector<OpCase> cases() {
  std::vector<OpCase> list;
  for (const DeltaSpec& s : kDeltaSpecs) {
    list.push_back({std::string("delta_net__") + s.name,
                    [&s](const Backend& b) { return run_at_once(b, DeltaCase(s)); }, kRecurrentNmse, kRecurrentReason,
                    kDeviceNmse, kDeviceReason, kDeviceNmse});
  }
  DeltaCase still(delta_spec("chunk_and_one"));
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
    passes_do_not_matter(backend, DeltaCase(delta_spec(name)));
}

void copies(const Backend& backend) {
  for (const char* name : {"other_copy", "other_copy_token"}) {
    DeltaSpec s = delta_spec(name);
    const DeltaCase second(s);
    s.current = 0;
    copies_are_alike(backend, DeltaCase(s), second);
  }
}

// A head that is not finite stays alone, whether its values, its gates or its sums are not.
void nan_stays_in_its_head(const Backend& backend) {
  for (const char* name : {"one_token", "grouped_token", "prompt", "grouped", "narrow_values"}) {
    const DeltaSpec& s = delta_spec(name);
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
    const DeltaSpec& s = delta_spec(name);
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
  const DeltaSpec s = {
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
