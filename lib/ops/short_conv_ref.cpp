// Gated short convolution, defined.
#include "ops/short_conv.h"

#include "ops/recurrent_ref.h"

namespace weir::ref {

Status short_conv(OpContext&, const ShortConvArgs& a) {
  const size_t n = a.conv.n_channels;
  const float* before = a.state.rows_before();
  for (size_t channel = 0; channel < n; ++channel) {
    const auto input = [&](size_t tok) { return a.x[tok * 3 * n + channel] * a.x[(tok * 3 + 2) * n + channel]; };
    for (size_t tok = 0; tok < a.n_tok; ++tok) {
      const double gate = a.x[(tok * 3 + 1) * n + channel];
      a.y[tok * n + channel] = static_cast<float>(gate * convolve(a.conv, before, channel, tok, input));
    }
    keep_rows(a.conv, before, a.state.rows_after(), channel, a.n_tok, input);
  }
  return {};
}

}  // namespace weir::ref
