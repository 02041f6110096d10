// IQ2_XS on the CPU (layout: quant/iq2_xs.h): unpacks a block for the vector code of grid_rows.h.
#include "quant/iq2_xs.h"

#include "cpu/grid_rows.h"

namespace weir::cpu {
namespace {

constexpr auto kBytes = grid2_bytes(kIq2XsGrid);

void unpack(const uint8_t* p, GridBlock& out) {
  const uint8_t *q = p + offsetof(BlockIQ2_XS, q), *sub_scales = p + offsetof(BlockIQ2_XS, sub_scales);
  for (size_t s = 0; s < 8; ++s) {
    uint64_t four;
    std::memcpy(&four, q + 8 * s, sizeof four);
    uint32_t seven = 0;  // four numbers of seven bits, as even_signs takes them
    for (size_t i = 0; i < 4; ++i) {
      std::memcpy(out.magnitude + 32 * s + 8 * i, &kBytes.entry[four >> (16 * i) & 511], sizeof kBytes.entry[0]);
      seven |= static_cast<uint32_t>(four >> (16 * i + 9) & 127) << (7 * i);
    }
    const uint32_t signs = even_signs(seven);
    std::memcpy(out.signs + 4 * s, &signs, sizeof signs);
    out.sub[2 * s] = odd_pair(sub_scales[s] & 15u), out.sub[2 * s + 1] = odd_pair(sub_scales[s] >> 4);
  }
}
constexpr GridType kGrid = {unpack, sizeof(BlockIQ2_XS), 0.125f};

}  // namespace

// 43 * 31 * 32767 * 32 < 2^31
const WeightKernels& weight_kernels_IQ2_XS() {
  return grid_weight_kernels<WeightType::kIQ2_XS, kGrid, TileKind::kGroupScale16>();
}

}  // namespace weir::cpu
