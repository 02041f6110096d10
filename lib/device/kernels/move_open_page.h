// The kernel move_open_page.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kv/open_move.h"
#include "kv/tables.h"
#include "ops/kv_format.h"

namespace weir::device {

// An OpenMove in all streams; of a stream whose page has left nothing is read.
struct MoveOpenPageArgs {
  KvTables tables;
  const uint16_t* pool;
  uint16_t* open;  // as in KvView, of the first stream
  size_t open_half;
  KvFormat format;
  uint32_t head_dim;
  OpenMove move;
};

}  // namespace weir::device
