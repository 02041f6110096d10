// Architecture "granitehybrid": Granite 4 with Mamba-2 layers, and Bamba. Layers that have KV heads have attention,
// which rotates only where the file says so; factors as in granite.
// Paper: Dao and Gu, "Transformers are SSMs", arXiv:2405.21060, sec. 7.
#include "models/model.h"

namespace weir {

extern const Architecture kArch_granitehybrid;
const Architecture kArch_granitehybrid = {.name = "granitehybrid",
                                          .rope_layout = RopeLayout::kAdjacent,
                                          .multipliers = true,
                                          .recurrent = Mixer::kMamba2,
                                          .which = Architecture::Which::kHeads,
                                          .experts = true,
                                          .whole_experts = true,
                                          .may_lack_experts = true,
                                          .shared_expert = Architecture::SharedExpert::kPlain,
                                          .rope_if_trained = true};

}  // namespace weir
