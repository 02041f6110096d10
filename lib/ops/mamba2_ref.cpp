// Mamba-2, defined: token by token, in f64 but for the sums, which are kept in f32.
#include "ops/mamba2.h"

#include "ops/recurrent_ref.h"

namespace weir::ref {

Status mamba2(OpContext& cx, const Mamba2Args& a) {
  const size_t n_keys = a.key_dim, n_values = a.value_dim, inner = a.n_heads * n_values, channels = a.conv.n_channels;
  const size_t width = inner + channels + a.n_heads, group_heads = a.n_heads / a.n_groups;
  const float* rows = a.state.rows_before();
  auto *c = reinterpret_cast<double*>(cx.scratch), *o = c + channels;
  const auto input = [&](size_t channel) {
    return [&a, width, inner, channel](size_t t) { return a.x[t * width + inner + channel]; };
  };
  for (size_t tok = 0; tok < a.n_tok; ++tok) {
    const float *z = a.x + tok * width, *dt = z + inner + channels;
    for (size_t i = 0; i < channels; ++i) c[i] = silu(convolve(a.conv, rows, i, tok, input(i)));
    const double *v = c, *all_b = v + inner, *all_c = all_b + a.n_groups * n_keys;
    const float* before = tok == 0 ? a.state.sums_before() : a.state.sums_after();
    for (size_t h = 0; h < a.n_heads; ++h) {
      const double *b = all_b + h / group_heads * n_keys, *q = all_c + h / group_heads * n_keys;
      const double d = softplus(double{dt[h]} + double{a.dt_bias[h]}), decay = std::exp(d * double{a.a[h]});
      for (size_t j = 0; j < n_values; ++j) {
        const double x = v[h * n_values + j];
        double sum = double{a.skip[h]} * x;
        for (size_t i = 0; i < n_keys; ++i) {
          const size_t at = (h * n_keys + i) * n_values + j;
          const double s = decay * double{before[at]} + d * b[i] * x;
          a.state.sums_after()[at] = static_cast<float>(s);
          sum += s * q[i];
        }
        o[h * n_values + j] = sum * silu(double{z[h * n_values + j]});
      }
    }
    const size_t n = group_heads * n_values;
    for (size_t first = 0; first < inner; first += n) {
      double sum = 0.0;
      for (size_t i = first; i < first + n; ++i) sum += o[i] * o[i];
      const double inverse = 1.0 / std::sqrt(sum / static_cast<double>(n) + double{a.eps});
      for (size_t i = first; i < first + n; ++i)
        a.y[tok * inner + i] = static_cast<float>(o[i] * inverse * double{a.norm[i]});
    }
  }
  for (size_t i = 0; i < channels; ++i) keep_rows(a.conv, rows, a.state.rows_after(), i, a.n_tok, input(i));
  return {};
}

}  // namespace weir::ref
