// IQ3_S on the CPU (layout: quant/iq3_s.h): unpacks a block for the vector code of grid_rows.h.
#include "quant/iq3_s.h"

#include "cpu/grid_rows.h"

namespace weir::cpu {
namespace {

constexpr auto kBytes = grid3_bytes(kIq3SGrid, kIq3SValues);

void unpack(const uint8_t* p, GridBlock& out) {
  BlockIQ3_S b;
  std::memcpy(&b, p, sizeof b);
  for (size_t s = 0; s < 8; ++s) {
    const uint32_t high = b.high[s];
    for (size_t i = 0; i < 8; ++i) {
      const uint32_t entry = kBytes.entry[b.q[8 * s + i] | (high << (8 - i) & 256)];
      std::memcpy(out.magnitude + 32 * s + 4 * i, &entry, sizeof entry);
    }
    out.sub[2 * s] = out.sub[2 * s + 1] = odd_pair(b.sub_scales[s / 2] >> (s % 2 * 4) & 15u);
  }
  std::memcpy(out.signs, b.signs, sizeof b.signs);
}
constexpr GridType kGrid = {unpack, sizeof(BlockIQ3_S), 1.0f};

}  // namespace

// 15 * 31 * 32767 * 64 < 2^31
const WeightKernels& weight_kernels_IQ3_S() {
  return grid_weight_kernels<WeightType::kIQ3_S, kGrid, TileKind::kGroupScale64>();
}

}  // namespace weir::cpu
