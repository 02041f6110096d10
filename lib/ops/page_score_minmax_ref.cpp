// Quest's bound of q.k over a page from the elementwise maximum and minimum of its keys, defined.
// Products are rounded to f32 and summed in f64, so that the order of the sum does not show and every backend ranks
// pages alike.
// Paper: Tang et al., "Quest: Query-Aware Sparsity for Efficient Long-Context LLM Inference", arXiv:2406.10774,
// sec. 3.2.
#include <algorithm>

#include "ops/ops.h"
#include "quant/half.h"

namespace weir::ref {

Status page_score_minmax(OpContext&, const PageScoreArgs& a) {
  const size_t d = a.kv.head_dim;
  const uint32_t group = a.n_heads / a.kv.n_kv_heads;
  for (uint32_t head = 0; head < a.n_heads; ++head) {
    const uint32_t kv_head = head / group;
    const float* q = a.q + head * d;
    for (uint32_t row = 0; row < a.kv.n_pages[kv_head]; ++row) {
      const uint16_t* high = a.kv.digests + size_t{a.kv.slots[size_t{kv_head} * a.kv.capacity + row]} * 2 * d;
      const uint16_t* low = high + d;
      double bound = 0.0;
      for (size_t i = 0; i < d; ++i) bound += double{std::max(q[i] * bf16_to_f32(high[i]), q[i] * bf16_to_f32(low[i]))};
      a.score[size_t{head} * a.kv.capacity + row] = static_cast<float>(bound);
    }
  }
  return {};
}

}  // namespace weir::ref
