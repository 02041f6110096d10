// Architecture "qwen35moe": Qwen 3.5 and later with a mixture of experts. Layers as in qwen35; in place of the
// feed-forward network experts, and a shared expert behind a sigmoid gate.
// Paper: Yang, Kautz, Hatamizadeh, "Gated Delta Networks", arXiv:2412.06464, sec. 3.
#include "models/model.h"

namespace weir {

extern const Architecture kArch_qwen35moe;
const Architecture kArch_qwen35moe = {.name = "qwen35moe",
                                      .pre = "qwen35",
                                      .rope_layout = RopeLayout::kHalfSplit,
                                      .qk_norm = Architecture::QkNorm::kHeads,
                                      .rope_part = 4,
                                      .head_gate = true,
                                      .recurrent = Mixer::kDeltaNet,
                                      .ffn_norm = "post_attention_norm.weight",
                                      .experts = true,
                                      .shared_expert = Architecture::SharedExpert::kGated};

}  // namespace weir
