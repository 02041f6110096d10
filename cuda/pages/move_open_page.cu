// Computes: what happens to open pages besides appending, see MoveOpenPageArgs.
// Launch: a block per stream.
// Numerics: elements of the pool rounded to bf16, as the host rounds them.
#include "cuda/common/base.cuh"
#include "cuda/ops.h"
#include "cuda/pages/kv_rows.cuh"
#include "cuda/step/step.cuh"
#include "device/kernels/move_open_page.h"

namespace weir::cuda {
namespace {

constexpr uint32_t kBlock = 128;

// The stream's row of a page, or kNoSlot: the newest rows are looked at first.
__device__ uint32_t row_of_page(const KvTables& t, uint32_t stream, uint32_t page) {
  const size_t first = t.row_begin[stream];
  for (uint32_t row = t.n_pages[stream]; row-- > 0;) {
    const uint32_t found = t.first_pos[first + row] / kPageTokens;
    if (found <= page) return found == page ? row : kNoSlot;
  }
  return kNoSlot;
}

template <KvFormat kFormat>
__global__ void __launch_bounds__(kBlock) move_open_page_kernel(const __grid_constant__ MoveOpenPageArgs a) {
  const uint32_t stream = blockIdx.x, d = a.head_dim;
  const size_t n = size_t{2} * kPageTokens * d;
  uint16_t* const to = a.open + a.move.to * a.open_half + stream * n;
  if (a.move.is_copy()) {
    const auto* from = reinterpret_cast<const uint4*>(a.open + a.move.from * a.open_half + stream * n);
    for (uint32_t i = threadIdx.x; i < n * sizeof(uint16_t) / sizeof(uint4); i += kBlock)
      reinterpret_cast<uint4*>(to)[i] = from[i];
    return;
  }
  const uint32_t row = row_of_page(a.tables, stream, a.move.page);
  const uint32_t slot = row == kNoSlot ? kNoSlot : a.tables.slots[a.tables.row_begin[stream] + row];
  if (slot == kNoSlot) return;
  const uint16_t* page = a.pool + size_t{slot} * page_units<kFormat>(d);
  const auto keys = keys_at<kFormat>(page, d);
  const auto values = values_at<kFormat>(page, d);
  for (uint32_t i = threadIdx.x; i < a.move.n_rows * d; i += kBlock) {
    to[i] = float_to_bf16(keys.at(i / d, i % d));
    to[kPageTokens * d + i] = float_to_bf16(values.at(i / d, i % d));
  }
}

}  // namespace

Status move_open_page(OpContext& cx, const MoveOpenPageArgs& a) {
  return with_kv_format(a.format, [&](auto format) {
    return launch("move_open_page", move_open_page_kernel<format()>, a.tables.n_layers * a.tables.n_kv_heads, kBlock, 0,
                  stream_of(cx), false, a);
  });
}

}  // namespace weir::cuda
