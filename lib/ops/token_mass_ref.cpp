// Attention weights of tokens summed over query rows, defined: exp(logit - lse of the row), for the tokens that the row
// sees.
// Papers: Li et al., "SnapKV", arXiv:2404.14469, sec. 4 (observation window); Zhang et al., "H2O", arXiv:2306.14048.
#include <cmath>

#include "ops/soft_cap.h"
#include "ops/token_mass.h"

namespace weir::ref {

Status token_mass(OpContext&, const TokenMassArgs& a) {
  const size_t d = a.kv.head_dim;
  const uint32_t group = a.n_heads / a.kv.n_kv_heads;
  for (uint32_t kv_head = 0; kv_head < a.kv.n_kv_heads; ++kv_head) {
    for (uint32_t page = 0; page < a.kv.n_pages[kv_head]; ++page) {
      const size_t at = size_t{kv_head} * a.kv.capacity + page;
      for (uint32_t j = 0; j < a.kv.len[at]; ++j) {
        const auto keys = a.kv.keys_of(kv_head, page);
        float mass = 0.0f;
        for (uint32_t r = 0; r < a.n_rows; ++r) {
          const uint64_t token = uint64_t{a.kv.first_pos[at]} + j, row = uint64_t{a.pos} + r;
          if (token > row || (a.window != 0 && token + a.window <= row)) continue;
          for (uint32_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
            const float* q = a.q + (size_t{r} * a.n_heads + head) * d;
            float dot = 0.0f;
            for (size_t i = 0; i < d; ++i) dot += q[i] * load_element(keys, j, i);
            mass += std::exp(soft_capped(a.scale * dot, a.soft_cap) - a.lse[size_t{r} * a.n_heads + head]);
          }
        }
        a.mass[at * kPageTokens + j] = mass;
      }
    }
  }
  return {};
}

}  // namespace weir::ref
