// Encoders by weight type. A type has one when its header defines encode() for its block.
#include "quant/encode.h"

#include "quant/blocks.h"

namespace weir {
namespace {

using EncodeFn = void (*)(const float* weights, void* blocks, size_t n);

template <class Block>
constexpr EncodeFn encoder() {
  if constexpr (requires(const float* weights, Block& block) { encode(weights, block); }) {
    return [](const float* weights, void* blocks, size_t n) {
      auto* block = static_cast<Block*>(blocks);
      for (size_t i = 0; i < n / Block::kWeights; ++i) encode(weights + i * Block::kWeights, block[i]);
    };
  } else {
    return nullptr;
  }
}

constexpr EncodeFn kEncoders[] = {
#define WEIR_QUANT(Name, text, gguf_id, block_weights, block_bytes) encoder<Block##Name>(),
#include "quant/quants.inc"
#undef WEIR_QUANT
};

}  // namespace

bool can_encode(WeightType type) { return kEncoders[static_cast<size_t>(type)] != nullptr; }

bool encode_weights(WeightType type, const float* weights, void* blocks, size_t n) {
  if (!can_encode(type)) return false;
  kEncoders[static_cast<size_t>(type)](weights, blocks, n);
  return true;
}

}  // namespace weir
