// IQ3_XXS on the CPU (layout: quant/iq3_xxs.h): unpacks a block for the vector code of grid_rows.h.
#include "quant/iq3_xxs.h"

#include "cpu/grid_rows.h"

namespace weir::cpu {
namespace {

constexpr auto kBytes = grid3_bytes(kIq3XxsGrid, kIq3XxsValues);

void unpack(const uint8_t* p, GridBlock& out) {
  const uint8_t *q = p + offsetof(BlockIQ3_XXS, q), *sub = p + offsetof(BlockIQ3_XXS, sub);
  for (size_t s = 0; s < 8; ++s) {
    for (size_t i = 0; i < 8; ++i)
      std::memcpy(out.magnitude + 32 * s + 4 * i, &kBytes.entry[q[8 * s + i]], sizeof kBytes.entry[0]);
    uint32_t word;
    std::memcpy(&word, sub + 4 * s, sizeof word);
    const uint32_t signs = even_signs(word);
    std::memcpy(out.signs + 4 * s, &signs, sizeof signs);
    out.sub[2 * s] = out.sub[2 * s + 1] = odd_pair(word >> 28);
  }
}
constexpr GridType kGrid = {unpack, sizeof(BlockIQ3_XXS), 0.5f};

}  // namespace

// 31 * 31 * 32767 * 64 < 2^31
const WeightKernels& weight_kernels_IQ3_XXS() {
  return grid_weight_kernels<WeightType::kIQ3_XXS, kGrid, TileKind::kGroupScale64>();
}

}  // namespace weir::cpu
