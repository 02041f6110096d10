// Reference of embed: rows of the table, decoded and scaled.
#include "ops/embed.h"

namespace weir::ref {

Status embed(OpContext&, const EmbedArgs& a) {
  for (size_t t = 0; t < a.n_tok; ++t) {
    const uint8_t* row = a.table.data + static_cast<size_t>(a.tokens[t]) * a.table.row_bytes;
    float* x = a.x + t * a.table.n_cols;
    weight_type_info(a.table.type).decode(row, x, a.table.n_cols);
    for (size_t i = 0; i < a.table.n_cols; ++i) x[i] *= a.scale;
  }
  return {};
}

}  // namespace weir::ref
