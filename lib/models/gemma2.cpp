// Architecture "gemma2": Gemma 2. Norms before and after attention and feed-forward, GELU gates, scaled embeddings,
// caps of attention and output logits; every second layer sees a window. Norm weights have the model's +1 in them.
// Paper: Gemma Team, "Gemma 2", arXiv:2408.00118, sec. 2.
#include <cmath>

#include "models/model.h"

namespace weir {
namespace {

void adapt(ModelConfig& c) {
  c.embedding_scale = std::sqrt(static_cast<float>(c.d_model));
  // The model with 27 billion parameters, the only one with 46 layers, divides by the root of d_model / n_heads; no key
  // of the file says so.
  if (c.n_layers == 46) c.attn_scale = 1.0f / std::sqrt(static_cast<float>(c.d_model / c.n_heads));
}

}  // namespace

extern const Architecture kArch_gemma2;
const Architecture kArch_gemma2 = {.name = "gemma2",
                                   .rope_layout = RopeLayout::kHalfSplit,
                                   .post_norms = true,
                                   .soft_caps = true,
                                   .usual_attn_cap = 50.0f,
                                   .usual_logit_cap = 30.0f,
                                   .rope_base_optional = true,
                                   .gate = Gate::kGelu,
                                   .global_every = 2,
                                   .adapt = adapt};

}  // namespace weir
