// Architecture "llama": Llama 2 and 3, Mistral, DeepSeek-R1-Distill-Llama and their relatives. Its layers are the plain
// ones of lib/models/layer.cpp.
// Paper: Touvron et al., "Llama 2", arXiv:2307.09288, sec. 2.2.
// Where a file names no pre-tokenizer, a vocabulary is told to be Llama 3's by its size.
// GGUF converters permute the rows of q and k, so that elements 2i and 2i+1 of a head rotate together.
#include "models/model.h"

namespace weir {

extern const Architecture kArch_llama;
const Architecture kArch_llama = {.name = "llama",
                                  .pre = "llama-bpe",
                                  .pre_vocab = 128256,
                                  .rope_layout = RopeLayout::kAdjacent,
                                  .rope_base_optional = true};

}  // namespace weir
