// Architecture "qwen3vl": the language part of the dense Qwen3-VL models. Layers as in qwen3. Where images turn some
// pairs of a head by other positions than others (M-RoPE), those of text are all the same: the plain rotation.
// Paper: Bai et al., "Qwen3-VL Technical Report", arXiv:2511.21631, sec. 2.
#include "models/model.h"

namespace weir {

extern const Architecture kArch_qwen3vl;
const Architecture kArch_qwen3vl = {
    .name = "qwen3vl", .pre = kQwenPre, .rope_layout = RopeLayout::kHalfSplit, .qk_norm = Architecture::QkNorm::kHeads};

}  // namespace weir
