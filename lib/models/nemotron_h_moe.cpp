// Architecture "nemotron_h_moe": Nemotron 3 Nano and others. As nemotron_h, with experts in place of the feed-forward
// networks, chosen by sigmoids with a bias, and a shared expert without a gate.
// Paper: NVIDIA, "Nemotron 3 Nano", arXiv:2512.20848, sec. 2.
#include "models/model.h"

namespace weir {

extern const Architecture kArch_nemotron_h_moe;
const Architecture kArch_nemotron_h_moe = {.name = "nemotron_h_moe",
                                           .rope_layout = RopeLayout::kHalfSplit,
                                           .recurrent = Mixer::kMamba2,
                                           .which = Architecture::Which::kBlocks,
                                           .ffn_norm = "attn_norm.weight",
                                           .experts = true,
                                           .shared_expert = Architecture::SharedExpert::kPlain,
                                           .choice_bias = true,
                                           .no_gate = true,
                                           .route = {.score = RouteRule::Score::kSigmoid},
                                           .no_rope_every = 1};

}  // namespace weir
