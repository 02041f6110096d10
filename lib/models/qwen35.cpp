// Architecture "qwen35": dense Qwen 3.5 and later. Three of four layers are gated delta nets, which have a state of
// fixed size instead of pages; the fourth has attention whose output has a gate. A part of each head rotates. The norm
// before the feed-forward network is called post_attention_norm in the files.
// Paper: Yang, Kautz, Hatamizadeh, "Gated Delta Networks", arXiv:2412.06464, sec. 3.
#include "models/model.h"

namespace weir {

extern const Architecture kArch_qwen35;
const Architecture kArch_qwen35 = {.name = "qwen35",
                                   .pre = "qwen35",
                                   .rope_layout = RopeLayout::kHalfSplit,
                                   .qk_norm = Architecture::QkNorm::kHeads,
                                   .rope_part = 4,
                                   .head_gate = true,
                                   .recurrent = Mixer::kDeltaNet,
                                   .ffn_norm = "post_attention_norm.weight"};

}  // namespace weir
