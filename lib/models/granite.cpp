// Architecture "granite": the dense Granite 3 models. A Llama with factors of embeddings, residuals, attention logits
// and output logits, so that widths can be changed without new hyper-parameters.
// Paper: Shen et al., "Power Scheduler", arXiv:2408.13359, sec. 4 (the factors of muP).
#include "models/model.h"

namespace weir {

extern const Architecture kArch_granite;
const Architecture kArch_granite = {
    .name = "granite", .pre = "refact", .rope_layout = RopeLayout::kAdjacent, .multipliers = true};

}  // namespace weir
