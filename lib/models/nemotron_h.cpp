// Architecture "nemotron_h": Nemotron-H. A layer is one thing: Mamba-2, attention, which does not rotate, or a
// feed-forward network without a gate. All of them take the norm called attn_norm.
// Paper: NVIDIA, "Nemotron-H", arXiv:2504.03624, sec. 2.
#include "models/model.h"

namespace weir {

extern const Architecture kArch_nemotron_h;
const Architecture kArch_nemotron_h = {.name = "nemotron_h",
                                       .rope_layout = RopeLayout::kHalfSplit,
                                       .recurrent = Mixer::kMamba2,
                                       .which = Architecture::Which::kBlocks,
                                       .ffn_norm = "attn_norm.weight",
                                       .no_gate = true,
                                       .no_rope_every = 1};

}  // namespace weir
