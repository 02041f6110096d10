// Architecture "gpt-oss": gpt-oss-20b and gpt-oss-120b. Biases everywhere in attention and in the experts, clamped
// gates, attention sinks; every other layer, the first among them, sees a window. The norm before the experts is called
// post_attention_norm in the files.
// Paper: OpenAI, "gpt-oss-120b & gpt-oss-20b Model Card", arXiv:2508.10925, sec. 2.
// YaRN's range of blended frequencies is not rounded to whole dimensions; no key of the file says so.
#include "models/model.h"

namespace weir {

extern const Architecture kArch_gpt_oss;
const Architecture kArch_gpt_oss = {.name = "gpt-oss",
                                    .pre = "gpt-4o",
                                    .rope_layout = RopeLayout::kHalfSplit,
                                    .qkv_bias = true,
                                    .usual_rope_base = 150000.0f,
                                    .attn_output_bias = true,
                                    .attn_sinks = true,
                                    .gate = Gate::kClamped,
                                    .ffn_norm = "post_attention_norm.weight",
                                    .experts = true,
                                    .ffn_bias = true,
                                    .global_every = 2,
                                    .yarn_rounds = false};

}  // namespace weir
