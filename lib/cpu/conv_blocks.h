// How the channels of a recurrent layer's convolution are divided into tasks.
#pragma once

#include <cstddef>

#include "ops/recurrent.h"

namespace weir::cpu {

// Channels of a task: their weights, turned, take 8 KiB of stack.
inline constexpr size_t kConvChannels = 32;

inline size_t conv_blocks(const ConvArgs& conv) { return (conv.n_channels + kConvChannels - 1) / kConvChannels; }

}  // namespace weir::cpu
