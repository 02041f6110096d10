// Vector decoder of IQ4_NL (layout: quant/iq4_nl.h): nibbles as in Q4_0 index a table in a register.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/weight_iq4_nl.cpp"
#include "cpu/simd_targets.h"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "cpu/nibble_lanes-inl.h"
#include "cpu/weight_kernels-inl.h"
#include "quant/iq4_nl.h"

WEIR_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {
#if WEIR_VECTOR_KERNELS

struct DecoderIQ4_NL : CodebookLanes {
  static constexpr Layout kLayout = Layout::kBlocks;
  static constexpr size_t kBlockBytes = sizeof(BlockIQ4_NL);
  static constexpr int8_t kOffset = 0;
  static constexpr size_t kMinima = 0;
  static constexpr Codebook kValues = make_codebook(kIq4Values);

  template <bool, class F>
  static HWY_INLINE void blocks(const uint8_t* p, const uint8_t* next, F&& f) {
    look_up_blocks<offsetof(BlockIQ4_NL, q)>(kValues, p, next, f);
  }
};

#endif
WEIR_WEIGHT_KERNELS(IQ4_NL)
}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {
WEIR_EXPORT_WEIGHT_KERNELS(IQ4_NL)
}  // namespace weir::cpu
#endif
