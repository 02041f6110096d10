// Architecture "qwen3vlmoe": the language part of the Qwen3-VL models with a mixture of experts, among them
// Qwen3-VL-30B-A3B. Layers as in qwen3moe; of the rotation see qwen3vl.
// Paper: Bai et al., "Qwen3-VL Technical Report", arXiv:2511.21631, sec. 2.
#include "models/model.h"

namespace weir {

extern const Architecture kArch_qwen3vlmoe;
const Architecture kArch_qwen3vlmoe = {.name = "qwen3vlmoe",
                                       .pre = kQwenPre,
                                       .rope_layout = RopeLayout::kHalfSplit,
                                       .qk_norm = Architecture::QkNorm::kHeads,
                                       .experts = true};

}  // namespace weir
