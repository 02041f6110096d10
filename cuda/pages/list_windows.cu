// Computes: lists of all rows in use for the streams that have windows of their own, after page_select; see
// ListWindowsArgs.
// Launch: one block per list.
#include "cuda/common/base.cuh"
#include "cuda/pages/list_windows.cuh"

namespace weir::cuda {
namespace {

constexpr uint32_t kBlock = 128;

__global__ void __launch_bounds__(kBlock) list_windows_kernel(const ListWindowsArgs a) {
  start_next();
  wait_for_previous();
  const uint32_t list = blockIdx.x, kv_head = list / (a.n_lists / a.n_kv_heads);
  if (a.windows[kv_head] == 0) return;
  const uint32_t n = a.n_pages[kv_head];
  for (uint32_t row = threadIdx.x; row < n; row += kBlock) a.select[size_t{list} * a.capacity + row] = row;
  if (threadIdx.x == 0) a.n_select[list] = n;
}

}  // namespace

Status list_windows(OpContext& cx, const ListWindowsArgs& a) {
  return launch("list_windows", list_windows_kernel, a.n_lists, kBlock, 0, stream_of(cx), true, a);
}

}  // namespace weir::cuda
