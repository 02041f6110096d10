// Architecture "qwen3": dense Qwen 3. No biases; q and k are RMS-normalised head by head before the rotation.
// Paper: Yang et al., "Qwen3 Technical Report", arXiv:2505.09388, sec. 2.
#include "models/model.h"

namespace weir {

extern const Architecture kArch_qwen3;
const Architecture kArch_qwen3 = {
    .name = "qwen3", .pre = kQwenPre, .rope_layout = RopeLayout::kHalfSplit, .qk_norm = Architecture::QkNorm::kHeads};

}  // namespace weir
