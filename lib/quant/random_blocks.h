// Random valid blocks of any weight type: weights for a model of a given shape, for benchmarks without a model file.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/weight_type.h"

namespace weir {

// Fills `blocks` with `n` weights (a multiple of the type's block_weights). The decoded weights are finite, have
// approximately mean 0 and standard deviation `scale`, and depend only on the type, the seed and the scale. For a row
// of n columns, scale = 1 / sqrt(n) gives outputs of the inputs' magnitude. Use another seed for each row or matrix.
// Block scales are f16, so `scale` must lie within 1e-3 .. 10; below 0.005 the f16 rounding of inner scales begins to
// show in the deviation.
void fill_random_blocks(WeightType type, void* blocks, size_t n, uint64_t seed, float scale);

}  // namespace weir
