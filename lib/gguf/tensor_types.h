// Names and block sizes of every tensor type that GGUF files may have, including types that Weir cannot compute with:
// their tensors can still be listed, and their position in the file checked.
#pragma once

#include <cstdint>

#include "quant/given_up.h"

namespace weir {

struct TensorType {
  const char* name;        // "q8_0", static
  uint32_t block_weights;  // weights of one block
  uint32_t block_bytes;    // bytes of one block
};

// False when the number is unknown, or of a type that the format has given up.
bool find_tensor_type(uint32_t gguf_id, TensorType& out);

// Null when the number never meant a type, or still does.
const GivenUpType* find_given_up_type(uint32_t gguf_id);

}  // namespace weir
