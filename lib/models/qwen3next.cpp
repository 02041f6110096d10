// Architecture "qwen3next": Qwen3-Next. As qwen35moe, but heads of the delta net that share a key head are neighbours,
// and the gates of its state are one matrix.
// Paper: Yang, Kautz, Hatamizadeh, "Gated Delta Networks", arXiv:2412.06464, sec. 3.
#include "models/model.h"

namespace weir {

extern const Architecture kArch_qwen3next;
const Architecture kArch_qwen3next = {.name = "qwen3next",
                                      .pre = kQwenPre,
                                      .rope_layout = RopeLayout::kHalfSplit,
                                      .qk_norm = Architecture::QkNorm::kHeads,
                                      .rope_part = 4,
                                      .head_gate = true,
                                      .recurrent = Mixer::kDeltaNet,
                                      .fused_gates = true,
                                      .grouped_heads = true,
                                      .ffn_norm = "post_attention_norm.weight",
                                      .experts = true,
                                      .shared_expert = Architecture::SharedExpert::kGated};

}  // namespace weir
