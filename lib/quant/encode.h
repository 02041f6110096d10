// Encodes f32 weights as blocks, for the types that have an encoder (f32, f16, bf16, q8_0, q4_0): for the weights of
// benchmarks and tests. It is not a quantiser of models; files come with their weights encoded.
#pragma once

#include <cstddef>

#include "quant/weight_type.h"

namespace weir {

// Whether encode_weights can make blocks of `type`.
bool can_encode(WeightType type);

// Encodes `n` finite weights (a multiple of the type's block_weights) to `blocks`, n / block_weights * block_bytes
// bytes. Returns false and writes nothing if the type has no encoder.
bool encode_weights(WeightType type, const float* weights, void* blocks, size_t n);

}  // namespace weir
