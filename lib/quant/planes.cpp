// Separates the blocks of quantised matrices into aligned planes; <type>.h has each type's layout.
#include "quant/planes.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "quant/blocks.h"

namespace weir {
namespace {

template <WeightType T, class Block>
void repack_rows(const Weight& host, uint32_t first_row, uint32_t end_row, uint8_t* out) {
  if constexpr (Block::kWeights == 1) {
    std::memcpy(out + first_row * host.row_bytes, host.data + first_row * host.row_bytes,
                (end_row - first_row) * host.row_bytes);
  } else {
    const size_t per_row = host.n_cols / Block::kWeights, n = size_t{host.n_rows} * host.n_cols / 32;
    for (uint32_t row = first_row; row < end_row; ++row) {
      const auto* blocks = reinterpret_cast<const Block*>(host.data + row * host.row_bytes);
      for (size_t i = 0; i < per_row; ++i)
        PlaneLayout<T>::place(blocks[i], (row * per_row + i) * (Block::kWeights / 32), n, out);
    }
  }
}

}  // namespace

Status check_planes(const Weight& w) {
  if (w.n_cols % 32 == 0) return {};
  return fail(WEIR_ERR_UNSUPPORTED, "a matrix of %u columns: this device needs a multiple of 32", w.n_cols);
}

uint32_t planes_of(WeightType type, uint32_t bytes[kMaxPlanes]) {
  switch (type) {
#define WEIR_QUANT(Name, text, gguf_id, block_weights, block_bytes)    \
  case WeightType::k##Name: {                                          \
    constexpr auto& kBytes = PlaneLayout<WeightType::k##Name>::kBytes; \
    static_assert(std::size(kBytes) <= kMaxPlanes);                    \
    std::copy(std::begin(kBytes), std::end(kBytes), bytes);            \
    return static_cast<uint32_t>(std::size(kBytes));                   \
  }
#include "quant/quants.inc"
#undef WEIR_QUANT
  }
  return 0;
}

void repack(const Weight& host, uint32_t first_row, uint32_t end_row, uint8_t* out) {
  switch (host.type) {
#define WEIR_QUANT(Name, text, gguf_id, block_weights, block_bytes) \
  case WeightType::k##Name:                                         \
    return repack_rows<WeightType::k##Name, Block##Name>(host, first_row, end_row, out);
#include "quant/quants.inc"
#undef WEIR_QUANT
  }
}

}  // namespace weir
