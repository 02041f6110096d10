// Architecture "olmo2": OLMo 2. Attention and feed-forward take the residual stream as it is, and what they add is
// normalised; q and k are normalised over all heads together.
// Paper: Team OLMo, "2 OLMo 2 Furious", arXiv:2501.00656, sec. 2.1.
#include "models/model.h"

namespace weir {

extern const Architecture kArch_olmo2;
const Architecture kArch_olmo2 = {.name = "olmo2",
                                  .pre = "dbrx",
                                  .rope_layout = RopeLayout::kHalfSplit,
                                  .qk_norm = Architecture::QkNorm::kRows,
                                  .pre_norms = false,
                                  .post_norms = true};

}  // namespace weir
