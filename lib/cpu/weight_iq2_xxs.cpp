// IQ2_XXS on the CPU (layout: quant/iq2_xxs.h): unpacks a block for the vector code of grid_rows.h.
#include "quant/iq2_xxs.h"

#include "cpu/grid_rows.h"

namespace weir::cpu {
namespace {

constexpr auto kBytes = grid2_bytes(kIq2XxsGrid);

void unpack(const uint8_t* p, GridBlock& out) {
  const uint8_t* sub = p + offsetof(BlockIQ2_XXS, sub);
  for (size_t s = 0; s < 8; ++s) {
    uint32_t q, word;
    std::memcpy(&q, sub + 8 * s, sizeof q);
    std::memcpy(&word, sub + 8 * s + 4, sizeof word);
    for (size_t i = 0; i < 4; ++i)
      std::memcpy(out.magnitude + 32 * s + 8 * i, &kBytes.entry[q >> (8 * i) & 255], sizeof kBytes.entry[0]);
    const uint32_t signs = even_signs(word);
    std::memcpy(out.signs + 4 * s, &signs, sizeof signs);
    out.sub[2 * s] = out.sub[2 * s + 1] = odd_pair(word >> 28);
  }
}
constexpr GridType kGrid = {unpack, sizeof(BlockIQ2_XXS), 0.125f};

}  // namespace

// 43 * 31 * 32767 * 32 < 2^31
const WeightKernels& weight_kernels_IQ2_XXS() {
  return grid_weight_kernels<WeightType::kIQ2_XXS, kGrid, TileKind::kGroupScale16>();
}

}  // namespace weir::cpu
