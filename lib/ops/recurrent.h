// What the ops of recurrent layers share (delta_net.h, mamba2.h, short_conv.h): the state that such a layer has instead
// of pages. Its size does not depend on the number of tokens.
#pragma once

#include <cstdint>

namespace weir {

// What the recurrent layers of a model have in common; all have the same sizes.
struct RecurrentShape {
  uint32_t n_layers = 0;  // 0: the model has none, and the rest says nothing
  uint32_t n_taps = 0, n_channels = 0;
  uint32_t n_heads = 0, key_dim = 0, value_dim = 0;  // of the sums; n_heads 0: a layer has only a convolution
  uint32_t n_key_heads = 0;                          // delta net: heads of q and k; Mamba-2: groups
  uint32_t in_width = 0, gate_width = 0, width = 0;  // of an op's input, of beta and alpha, and of its output

  // Elements of a layer's state, in multiples of 64 bytes.
  uint64_t row_elements() const { return (uint64_t{n_taps - 1} * n_channels + 15) / 16 * 16; }
  uint64_t sum_elements() const { return (uint64_t{n_heads} * key_dim * value_dim + 15) / 16 * 16; }
  uint64_t layer_elements() const { return row_elements() + sum_elements(); }
  uint64_t elements() const { return n_layers * layer_elements(); }
};

// One layer's state, twice: a pass reads the current one and writes the other, which becomes current when the pass is
// complete. So a pass that fails, is cancelled or is repeated has changed nothing.
struct LayerState {
  float* rows[2] = {};                // [n_taps - 1, n_channels] the latest inputs of the convolution, the oldest first
  float* sums[2] = {};                // [n_heads, key_dim, value_dim]; null: the layer has only a convolution
  const uint32_t* current = nullptr;  // which of the two, 0 or 1; read when the op runs
  bool forked = false;  // a device's queue forks right before the op: it begins when all before it has ended

  const float* rows_before() const { return rows[*current]; }
  float* rows_after() const { return rows[*current ^ 1]; }
  const float* sums_before() const { return sums[*current]; }
  float* sums_after() const { return sums[*current ^ 1]; }
};

// Causal convolution of each channel by itself: output = bias + sum over j < n_taps of
// weight[channel, j] * input[token - (n_taps - 1) + j]. Inputs before the pass are the state's rows.
struct ConvArgs {
  const float* weight;          // [n_channels, n_taps]
  const float* bias = nullptr;  // [n_channels] or null
  uint32_t n_channels, n_taps;  // at most kMaxTaps
};
inline constexpr uint32_t kMaxTaps = 64;

// Largest sizes of a head's part of the sums.
inline constexpr uint32_t kMaxKeyDim = 256, kMaxValueDim = 256;

}  // namespace weir
