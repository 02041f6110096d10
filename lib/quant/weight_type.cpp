// The table of weight types, generated from quants.inc: names, sizes and the plain decoders.
#include "quant/weight_type.h"

#include "quant/blocks.h"

namespace weir {
namespace {

template <class Block>
void decode_row(const void* blocks, float* out, size_t n) {
  const auto* block = static_cast<const Block*>(blocks);
  for (size_t i = 0; i < n / Block::kWeights; ++i) decode(block[i], out + i * Block::kWeights);
}

#define WEIR_QUANT(Name, text, gguf_id, block_weights, block_bytes)                                               \
  static_assert(Block##Name::kWeights == (block_weights) && sizeof(Block##Name) == (block_bytes));                \
  static_assert((block_weights) == 1 || (block_weights) == 32 || (block_weights) == 64 || (block_weights) == 256, \
                "kernels know numbers, blocks of 32 and 64 and super-blocks of 256 weights");                     \
  static_assert(alignof(Block##Name) == 1, "blocks lie at any address");
#include "quant/quants.inc"
#undef WEIR_QUANT

constexpr WeightTypeInfo kInfo[] = {
#define WEIR_QUANT(Name, text, gguf_id, block_weights, block_bytes) \
  {text, gguf_id, block_weights, block_bytes, decode_row<Block##Name>},
#include "quant/quants.inc"
#undef WEIR_QUANT
};

}  // namespace

const WeightTypeInfo& weight_type_info(WeightType type) { return kInfo[static_cast<size_t>(type)]; }

bool weight_type_from_gguf(uint32_t gguf_id, WeightType& out) {
  for (size_t i = 0; i < kWeightTypeCount; ++i) {
    if (kInfo[i].gguf_id != gguf_id) continue;
    out = static_cast<WeightType>(i);
    return true;
  }
  return false;
}

}  // namespace weir
