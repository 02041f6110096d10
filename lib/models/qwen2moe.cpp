// Architecture "qwen2moe": Qwen1.5-MoE and Qwen2-57B-A14B. Attention as in qwen2; in place of the feed-forward network
// experts, whose weights are a softmax over all of them, and a shared expert behind a sigmoid gate.
// Paper: Yang et al., "Qwen2 Technical Report", arXiv:2407.10671, sec. 2.2.
#include "models/model.h"

namespace weir {

extern const Architecture kArch_qwen2moe;
const Architecture kArch_qwen2moe = {.name = "qwen2moe",
                                     .pre = kQwenPre,
                                     .rope_layout = RopeLayout::kHalfSplit,
                                     .qkv_bias = true,
                                     .experts = true,
                                     .shared_expert = Architecture::SharedExpert::kGated,
                                     .route = {.normalise = false}};

}  // namespace weir
