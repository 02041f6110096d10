// Queries that grow with their positions, defined.
#include "ops/temper.h"

namespace weir::ref {

Status temper(OpContext&, const TemperArgs& a) {
  const uint32_t first = a.pos_at != nullptr ? *a.pos_at : a.pos;
  for (uint32_t tok = 0; tok < a.n_tok; ++tok) {
    const float factor = a.temperature.at(first + tok);
    for (size_t i = 0; i < a.width; ++i) a.q[size_t{tok} * a.width + i] *= factor;
  }
  return {};
}

}  // namespace weir::ref
