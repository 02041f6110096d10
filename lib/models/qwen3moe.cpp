// Architecture "qwen3moe": the Qwen 3 models with a mixture of experts, among them Qwen3-30B-A3B. Attention as in
// qwen3; in place of the feed-forward network experts, whose weights are normalised over the chosen ones.
// Paper: Yang et al., "Qwen3 Technical Report", arXiv:2505.09388, sec. 2.
#include "models/model.h"

namespace weir {

extern const Architecture kArch_qwen3moe;
const Architecture kArch_qwen3moe = {.name = "qwen3moe",
                                     .pre = kQwenPre,
                                     .rope_layout = RopeLayout::kHalfSplit,
                                     .qk_norm = Architecture::QkNorm::kHeads,
                                     .experts = true};

}  // namespace weir
