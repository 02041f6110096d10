// The gated delta rule, defined: token by token, in f64 but for the sums, which are kept in f32.
#include "ops/delta_net.h"

#include "ops/recurrent_ref.h"

namespace weir::ref {
namespace {

// x [n] divided by its length and multiplied by `factor`.
void normalise(double* x, size_t n, double factor) {
  double sum = 0.0;
  for (size_t i = 0; i < n; ++i) sum += x[i] * x[i];
  const double inverse = factor / std::sqrt(sum + double{kLengthEps});
  for (size_t i = 0; i < n; ++i) x[i] *= inverse;
}

// One token of one head: S [key_dim, value_dim] is read from `before` and written to `after`, which may be the same.
void run_token(const DeltaNetArgs& a, double decay, double beta, const double* q, const double* k, const double* v,
               const float* before, float* after, double* o) {
  const size_t n_keys = a.key_dim, n_values = a.value_dim;
  for (size_t j = 0; j < n_values; ++j) {
    double seen = 0.0;
    for (size_t i = 0; i < n_keys; ++i) seen += decay * double{before[i * n_values + j]} * k[i];
    const double e = beta * (v[j] - seen);
    o[j] = 0.0;
    for (size_t i = 0; i < n_keys; ++i) {
      const double s = decay * double{before[i * n_values + j]} + k[i] * e;
      after[i * n_values + j] = static_cast<float>(s);
      o[j] += s * q[i];
    }
  }
}

// RMS norm of a head's output, times the gate.
void finish(const DeltaNetArgs& a, const double* o, const float* z, float* y) {
  double sum = 0.0;
  for (size_t j = 0; j < a.value_dim; ++j) sum += o[j] * o[j];
  const double inverse = 1.0 / std::sqrt(sum / a.value_dim + double{a.eps});
  for (size_t j = 0; j < a.value_dim; ++j)
    y[j] = static_cast<float>(o[j] * inverse * double{a.norm[j]} * silu(double{z[j]}));
}

}  // namespace

Status delta_net(OpContext& cx, const DeltaNetArgs& a) {
  const size_t n_keys = a.key_dim, n_values = a.value_dim, channels = a.conv.n_channels;
  const float* rows = a.state.rows_before();
  auto *c = reinterpret_cast<double*>(cx.scratch), *o = c + channels;
  const auto input = [&](size_t channel) {
    return [&a, channels, channel](size_t t) { return a.m[t * channels + channel]; };
  };
  for (size_t tok = 0; tok < a.n_tok; ++tok) {
    for (size_t i = 0; i < channels; ++i) c[i] = silu(convolve(a.conv, rows, i, tok, input(i)));
    double *q = c, *k = q + a.n_key_heads * n_keys, *v = k + a.n_key_heads * n_keys;
    for (size_t i = 0; i < a.n_key_heads; ++i) {
      normalise(q + i * n_keys, n_keys, 1.0 / std::sqrt(static_cast<double>(n_keys)));
      normalise(k + i * n_keys, n_keys, 1.0);
    }
    const float* sums = tok == 0 ? a.state.sums_before() : a.state.sums_after();
    for (size_t h = 0; h < a.n_heads; ++h) {
      const size_t kh = a.grouped ? h / (a.n_heads / a.n_key_heads) : h % a.n_key_heads;
      const size_t gate = tok * a.gate_stride + h / a.gate_group * a.group_stride + h % a.gate_group;
      const double decay = std::exp(double{a.a[h]} * softplus(double{a.alpha[gate]} + double{a.dt_bias[h]}));
      run_token(a, decay, sigmoid(double{a.beta[gate]}), q + kh * n_keys, k + kh * n_keys, v + h * n_values,
                sums + h * n_keys * n_values, a.state.sums_after() + h * n_keys * n_values, o);
      const size_t at = (tok * a.n_heads + h) * n_values;
      finish(a, o, a.z + at, a.y + at);
    }
  }
  for (size_t i = 0; i < channels; ++i) keep_rows(a.conv, rows, a.state.rows_after(), i, a.n_tok, input(i));
  return {};
}

}  // namespace weir::ref
