// Architecture "mistral3": Ministral 3, Devstral 2 and their relatives (text). Llama layers with YaRN, whose magnitude
// the files take back (rope.scaling.yarn_log_multiplier), and queries that grow with the position: times
// 1 + beta * log(1 + floor(position / original context)).
// Source: Nakanishi, "Scalable-Softmax Is Superior for Attention", arXiv:2501.19399, sec. 3 (why queries grow); the
// form is that of Llama 4.
#include "models/model.h"

namespace weir {

extern const Architecture kArch_mistral3;
const Architecture kArch_mistral3 = {
    .name = "mistral3", .pre = "tekken", .rope_layout = RopeLayout::kAdjacent, .temperature = true};

}  // namespace weir
