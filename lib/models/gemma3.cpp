// Architecture "gemma3": the text models of Gemma 3. Norms before and after attention and feed-forward, head norms,
// GELU gates, scaled embeddings; five layers with a window and a rotation base of their own, then one that sees all.
// The file has norm weights as they are multiplied: the model's +1 is already in them.
// Paper: Gemma Team, "Gemma 3 Technical Report", arXiv:2503.19786, sec. 2.
#include <cmath>

#include "models/model.h"

namespace weir {
namespace {

void adapt(ModelConfig& c) {
  c.embedding_scale = std::sqrt(static_cast<float>(c.d_model));
  // The model with 27 billion parameters, the only one with 62 layers, divides by the root of d_model / n_heads; no key
  // of the file says so.
  if (c.n_layers == 62) c.attn_scale = 1.0f / std::sqrt(static_cast<float>(c.d_model / c.n_heads));
}

}  // namespace

extern const Architecture kArch_gemma3;
const Architecture kArch_gemma3 = {.name = "gemma3",
                                   .rope_layout = RopeLayout::kHalfSplit,
                                   .qk_norm = Architecture::QkNorm::kHeads,
                                   .post_norms = true,
                                   .usual_rope_base = 1e6f,
                                   .gate = Gate::kGelu,
                                   .global_every = 6,
                                   .local_rope_base = 10000.0f,
                                   .adapt = adapt};

}  // namespace weir
