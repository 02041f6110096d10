// Gated short convolution, vectorised over the channels, which are divided among the threads.
#include "cpu/short_conv.h"

#include <algorithm>
#include <cmath>

#include "cpu/conv_blocks.h"
#include "cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/short_conv.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "cpu/recurrent-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {

void gated_convolve(const ShortConvArgs& a, size_t block) {
  const size_t n_channels = a.conv.n_channels, first = block * kConvChannels;
  const size_t n = std::min<size_t>(kConvChannels, n_channels - first);
  for (size_t tok = 0; tok < a.n_tok; ++tok) {
    const float* b = a.x + tok * 3 * n_channels + first;
    float* v = a.x + (tok * 3 + 2) * n_channels + first;
    each_vector(n,
                [&](size_t i, const auto& io) HWY_ATTR { io.store(hn::Mul(io.load(b + i), io.load(v + i)), v + i); });
  }
  convolve(a.conv, a.state, a.x + 2 * n_channels, 3 * n_channels, a.n_tok, first, n, false);
  for (size_t tok = 0; tok < a.n_tok; ++tok) {
    const float *c = a.x + (tok * 3 + 1) * n_channels + first, *v = c + n_channels;
    float* y = a.y + tok * n_channels + first;
    each_vector(n,
                [&](size_t i, const auto& io) HWY_ATTR { io.store(hn::Mul(io.load(c + i), io.load(v + i)), y + i); });
  }
}

}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {
namespace {

HWY_EXPORT(gated_convolve);

}  // namespace

Status short_conv(OpContext& cx, const ShortConvArgs& a) {
  const auto convolve = HWY_DYNAMIC_DISPATCH(gated_convolve);
  cx.pool->parallel_for(conv_blocks(a.conv), [&](size_t block, size_t) { convolve(a, block); });
  return {};
}

}  // namespace weir::cpu
#endif  // HWY_ONCE
