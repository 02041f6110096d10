// Architecture "lfm2": dense LFM2. Most layers are gated short convolutions; those that have KV heads have attention.
// The norm before the output is called token_embd_norm in the files.
// Paper: Liquid AI, "LFM2 Technical Report", arXiv:2511.23404, sec. 2.
#include "models/model.h"

namespace weir {

extern const Architecture kArch_lfm2;
const Architecture kArch_lfm2 = {.name = "lfm2",
                                 .pre = "lfm2",
                                 .rope_layout = RopeLayout::kHalfSplit,
                                 .qk_norm = Architecture::QkNorm::kHeads,
                                 .recurrent = Mixer::kShortConv,
                                 .which = Architecture::Which::kHeads,
                                 .output_norm = "token_embd_norm.weight"};

}  // namespace weir
