// Architecture "lfm2moe": LFM2 with a mixture of experts behind some dense layers, chosen by sigmoids with a bias.
// Layers as in lfm2.
// Paper: Liquid AI, "LFM2 Technical Report", arXiv:2511.23404, sec. 2.
#include "models/model.h"

namespace weir {

extern const Architecture kArch_lfm2moe;
const Architecture kArch_lfm2moe = {.name = "lfm2moe",
                                    .pre = "lfm2",
                                    .rope_layout = RopeLayout::kHalfSplit,
                                    .qk_norm = Architecture::QkNorm::kHeads,
                                    .recurrent = Mixer::kShortConv,
                                    .which = Architecture::Which::kHeads,
                                    .output_norm = "token_embd_norm.weight",
                                    .experts = true,
                                    .route = {.score = RouteRule::Score::kSigmoid}};

}  // namespace weir
