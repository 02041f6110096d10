// Architecture "glm4": the dense GLM-4-0414 models. Norms before and after attention and feed-forward, half of each
// head rotates (the file says how many elements), gate and up are one tensor.
// Source: GLM Team, "ChatGLM: A Family of Large Language Models from GLM-130B to GLM-4", arXiv:2406.12793, sec. 2.
#include "models/model.h"

namespace weir {

extern const Architecture kArch_glm4;
const Architecture kArch_glm4 = {.name = "glm4",
                                 .pre = "glm4",
                                 .rope_layout = RopeLayout::kAdjacent,
                                 .post_norms = true,
                                 .fused_glu = true,
                                 .rope_part = 2};

}  // namespace weir
