// Architecture "smollm3": SmolLM 3. A Llama whose every fourth layer does not rotate queries and keys.
// Source: Bakouch et al., "SmolLM3: smol, multilingual, long-context reasoner", Hugging Face 2025; layers without
// positions: Yang et al., "Rope to Nope and Back Again", arXiv:2501.18795, sec. 3.
#include "models/model.h"

namespace weir {

extern const Architecture kArch_smollm3;
const Architecture kArch_smollm3 = {.name = "smollm3",
                                    .pre = "smaug-bpe",
                                    .rope_layout = RopeLayout::kAdjacent,
                                    .usual_rope_base = 2e6f,
                                    .no_rope_every = 4};

}  // namespace weir
