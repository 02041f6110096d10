// The op short_conv: a layer of gated short convolution, between its two matrices.
#pragma once

#include <cstdint>

#include "ops/recurrent.h"
#include "ops/types.h"

namespace weir {

// Per token, of a row x: b, c, v, each [conv.n_channels]: y = c * convolution of (b * v).
// Paper: Liquid AI, "LFM2 Technical Report", arXiv:2511.23404, sec. 2.
struct ShortConvArgs {
  float* y;  // out [n_tok, conv.n_channels]
  float* x;  // [n_tok, 3, conv.n_channels]; overwritten
  uint32_t n_tok;
  ConvArgs conv;
  LayerState state;  // rows alone
};

}  // namespace weir
