// IQ2_S on the CPU (layout: quant/iq2_s.h): unpacks a block for the vector code of grid_rows.h.
#include "quant/iq2_s.h"

#include "cpu/grid_rows.h"

namespace weir::cpu {
namespace {

constexpr auto kBytes = grid2_bytes(kIq2SGrid);

void unpack(const uint8_t* p, GridBlock& out) {
  const uint8_t *q = p + offsetof(BlockIQ2_S, q), *sub_scales = p + offsetof(BlockIQ2_S, sub_scales);
  for (size_t s = 0; s < 8; ++s) {
    const uint32_t high = p[offsetof(BlockIQ2_S, high) + s];
    for (size_t i = 0; i < 4; ++i) {
      const uint64_t entry = kBytes.entry[q[4 * s + i] | (high << (8 - 2 * i) & 0x300)];
      std::memcpy(out.magnitude + 32 * s + 8 * i, &entry, sizeof entry);
    }
    out.sub[2 * s] = odd_pair(sub_scales[s] & 15u), out.sub[2 * s + 1] = odd_pair(sub_scales[s] >> 4);
  }
  std::memcpy(out.signs, p + offsetof(BlockIQ2_S, signs), kGroup / 8);
}
constexpr GridType kGrid = {unpack, sizeof(BlockIQ2_S), 0.125f};

}  // namespace

// 43 * 31 * 32767 * 32 < 2^31
const WeightKernels& weight_kernels_IQ2_S() {
  return grid_weight_kernels<WeightType::kIQ2_S, kGrid, TileKind::kGroupScale16>();
}

}  // namespace weir::cpu
