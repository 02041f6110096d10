// Architecture "glm4moe": GLM-4.5, GLM-4.5-Air, GLM-4.6 and GLM-4.7. The first layers are dense, the others have
// experts whose scores are sigmoids, with a bias of the choice, and a shared expert without a gate. A part of each head
// rotates; the larger models normalise the heads of q and k. The norm before the feed-forward network is called
// post_attention_norm in the files. The block behind the layers, which predicts the token after the next one, is not
// used.
// Paper: GLM-4.5 Team, "GLM-4.5: Agentic, Reasoning, and Coding (ARC) Foundation Models", arXiv:2508.06471, sec. 2.1.
#include "models/model.h"

namespace weir {

extern const Architecture kArch_glm4moe;
const Architecture kArch_glm4moe = {.name = "glm4moe",
                                    .pre = "glm4",
                                    .rope_layout = RopeLayout::kHalfSplit,
                                    .qk_norm = Architecture::QkNorm::kHeadsIfThere,
                                    .rope_part = 2,
                                    .ffn_norm = "post_attention_norm.weight",
                                    .experts = true,
                                    .shared_expert = Architecture::SharedExpert::kPlain,
                                    .choice_bias = true,
                                    .route = {.score = RouteRule::Score::kSigmoid}};

}  // namespace weir
