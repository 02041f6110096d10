// Fills blocks with random bytes; each type's make_random() then makes the fields valid that cannot be arbitrary.
#include "quant/random_blocks.h"

#include <cstring>

#include "quant/blocks.h"

namespace weir {
namespace {

// SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014): 64 bits per step of a
// counter.
uint64_t next_bits(uint64_t& state) {
  state += 0x9E3779B97F4A7C15u;
  uint64_t z = state;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

void fill_bytes(uint8_t* bytes, size_t n, uint64_t& state) {
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const uint64_t bits = next_bits(state);
    std::memcpy(bytes + i, &bits, 8);
  }
  if (i == n) return;
  const uint64_t bits = next_bits(state);
  std::memcpy(bytes + i, &bits, n - i);
}

template <class Block>
void fill_row(void* blocks, size_t n, uint64_t seed, float scale) {
  // Small blocks are filled several at a time, so that no random bits are wasted.
  constexpr size_t kGroup = sizeof(Block) < 8 ? 8 / sizeof(Block) : 1;
  auto* block = static_cast<Block*>(blocks);
  const size_t n_blocks = n / Block::kWeights;
  uint64_t state = next_bits(seed);  // so that neighbouring seeds start far apart
  for (size_t i = 0; i < n_blocks; i += kGroup) {
    const size_t group = n_blocks - i < kGroup ? n_blocks - i : kGroup;
    fill_bytes(reinterpret_cast<uint8_t*>(block + i), group * sizeof(Block), state);
    for (size_t j = 0; j < group; ++j) make_random(block[i + j], scale);
  }
}

using FillFn = void (*)(void* blocks, size_t n, uint64_t seed, float scale);

constexpr FillFn kFills[] = {
#define WEIR_QUANT(Name, text, gguf_id, block_weights, block_bytes) fill_row<Block##Name>,
#include "quant/quants.inc"
#undef WEIR_QUANT
};

}  // namespace

void fill_random_blocks(WeightType type, void* blocks, size_t n, uint64_t seed, float scale) {
  kFills[static_cast<size_t>(type)](blocks, n, seed, scale);
}

}  // namespace weir
