// Queries that grow with their positions: a product for each element, divided among the threads where there are many.
#include "cpu/temper.h"

#include <algorithm>

namespace weir::cpu {

Status temper(OpContext& cx, const TemperArgs& a) {
  constexpr uint32_t kTaskRows = 4;  // a few microseconds
  const uint32_t first = a.pos_at != nullptr ? *a.pos_at : a.pos;
  const auto rows = [&](size_t task, size_t) {
    const auto begin = static_cast<uint32_t>(task) * kTaskRows;
    for (uint32_t tok = begin; tok < std::min(a.n_tok, begin + kTaskRows); ++tok) {
      const float factor = a.temperature.at(first + tok);
      float* q = a.q + size_t{tok} * a.width;
      for (size_t i = 0; factor != 1.0f && i < a.width; ++i) q[i] *= factor;
    }
  };
  if (a.n_tok <= kTaskRows) {
    if (a.n_tok != 0) rows(0, 0);
  } else {
    cx.pool->parallel_for((a.n_tok + kTaskRows - 1) / kTaskRows, rows);
  }
  return {};
}

}  // namespace weir::cpu
