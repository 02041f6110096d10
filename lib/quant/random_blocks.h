// Random valid blocks of any weight type: the weights of a model of a given shape for benchmarks, where no file is at
// hand.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/weight_type.h"

namespace weir {

// Fills `blocks` with `n` weights (a multiple of the type's block_weights). The decoded weights have mean 0 and
// standard deviation `scale` (both approximately), are finite, and depend only on the type, the seed and the scale; a
// row of n columns that should give outputs of the inputs' magnitude takes scale = 1 / sqrt(n). Use another seed for
// each row or matrix. Scale blocks hold f16 numbers, so `scale` must lie within 1e-3 .. 10; below 0.005 the f16
// rounding of inner scales starts to show in the deviation.
void fill_random_blocks(WeightType type, void* blocks, size_t n, uint64_t seed, float scale);

}  // namespace weir
