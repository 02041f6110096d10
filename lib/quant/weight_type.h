// Weight types that Weir can compute with, and the shape of their blocks. quants.inc is the list; each type's layout
// and decoding are in its own header.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weir {

enum class WeightType : uint8_t {
#define WEIR_QUANT(Name, text, gguf_id, block_weights, block_bytes) k##Name,
#include "quant/quants.inc"
#undef WEIR_QUANT
};

struct WeightTypeInfo {
  const char* name;        // as users write it: "q8_0"
  uint32_t gguf_id;        // number in GGUF files
  uint32_t block_weights;  // weights of one block
  uint32_t block_bytes;    // bytes of one block
  // Decodes `n` weights (a multiple of block_weights) from `blocks`. The plain reference.
  void (*decode)(const void* blocks, float* out, size_t n);
};

// The most planes into which a device's layout separates the blocks of a type (planes.h).
inline constexpr uint32_t kMaxPlanes = 5;

inline constexpr size_t kWeightTypeCount = 0
#define WEIR_QUANT(Name, text, gguf_id, block_weights, block_bytes) +1
#include "quant/quants.inc"
#undef WEIR_QUANT
    ;

const WeightTypeInfo& weight_type_info(WeightType type);

// A weight matrix [n_rows, n_cols] as it lies in the file: y = W x has n_rows outputs. A vector is a matrix of one row.
struct Weight {
  const uint8_t* data = nullptr;  // null: absent
  WeightType type = WeightType::kF32;
  uint32_t n_rows = 0;
  uint32_t n_cols = 0;
  size_t row_bytes = 0;
};

// Whether the GGUF type number is one of Weir's types; sets `out` if so.
bool weight_type_from_gguf(uint32_t gguf_id, WeightType& out);

// Bytes of a row of `n` weights; `n` must be a multiple of the type's block_weights.
inline size_t weight_row_bytes(WeightType type, size_t n) {
  const WeightTypeInfo& info = weight_type_info(type);
  return n / info.block_weights * info.block_bytes;
}

}  // namespace weir
