// Architecture "granitemoe": the Granite 3 models with a mixture of experts, and with a shared expert beside them. As
// granite, with experts of the width that the files call feed_forward_length.
// Paper: Shen et al., "Power Scheduler", arXiv:2408.13359, sec. 4 (the factors of muP, and a mixture of experts).
#include "models/model.h"

namespace weir {

extern const Architecture kArch_granitemoe;
const Architecture kArch_granitemoe = {.name = "granitemoe",
                                       .pre = "refact",
                                       .rope_layout = RopeLayout::kAdjacent,
                                       .multipliers = true,
                                       .experts = true,
                                       .whole_experts = true,
                                       .shared_expert = Architecture::SharedExpert::kPlain};

}  // namespace weir
