// Soft caps of output logits, defined.
// Paper: Gemma Team, "Gemma 2: Improving Open Language Models at a Practical Size", arXiv:2408.00118, sec. 2.
#include "ops/soft_cap.h"

namespace weir::ref {

Status soft_cap(OpContext&, const SoftCapArgs& a) {
  for (uint32_t i = 0; i < a.n; ++i) a.x[i] = soft_capped(a.x[i], a.cap);
  return {};
}

}  // namespace weir::ref
