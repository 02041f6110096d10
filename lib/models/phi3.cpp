// Architecture "phi3": Phi-3 and Phi-4-mini. q, k and v are one tensor, gate and up are one; long-context models have
// LongRoPE's divisors, others may have a window in every layer.
// Paper: Abdin et al., "Phi-3 Technical Report", arXiv:2404.14219, sec. 2.
#include "models/model.h"

namespace weir {

extern const Architecture kArch_phi3;
const Architecture kArch_phi3 = {.name = "phi3",
                                 .pre = "gpt-4o",
                                 .rope_layout = RopeLayout::kHalfSplit,
                                 .fused = true,
                                 .rope_part = 1,
                                 .global_every = Architecture::kNeverGlobal};

}  // namespace weir
