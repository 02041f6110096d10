// Architecture "qwen2": Qwen 2 and 2.5, DeepSeek-R1-Distill-Qwen. Biases on q, k and v; element i of a head rotates
// with i + head_dim / 2.
// Paper: Yang et al., "Qwen2 Technical Report", arXiv:2407.10671, sec. 2.2.
#include "models/model.h"

namespace weir {

const char kQwenPre[] = "qwen2";

extern const Architecture kArch_qwen2;
const Architecture kArch_qwen2 = {
    .name = "qwen2", .pre = kQwenPre, .rope_layout = RopeLayout::kHalfSplit, .qkv_bias = true};

}  // namespace weir
