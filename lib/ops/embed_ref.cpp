// Reference of embed: rows of the table, decoded.
#include "ops/ops.h"

namespace weir::ref {

Status embed(OpContext&, const EmbedArgs& a) {
  for (size_t t = 0; t < a.n_tok; ++t) {
    const uint8_t* row = a.table.data + static_cast<size_t>(a.tokens[t]) * a.table.row_bytes;
    weight_type_info(a.table.type).decode(row, a.x + t * a.table.n_cols, a.table.n_cols);
  }
  return {};
}

}  // namespace weir::ref
