// Computes: the sums of what leaves the windows of single streams before a prompt chunk; see AddLeftArgs. The pages
// stay: the host takes them out of its tables afterwards.
// Launch: a warp per stream.
#include "cuda/pages/left_sums.cuh"

namespace weir::cuda {
namespace {

constexpr uint32_t kBlock = 128;

__global__ void __launch_bounds__(kBlock) add_left_kernel(const __grid_constant__ AddLeftArgs a) {
  const KvTables& t = a.tables;
  const uint32_t stream = blockIdx.x * (kBlock / kWarp) + threadIdx.x / kWarp;
  if (stream >= t.n_layers * t.n_kv_heads || t.window[stream] == 0 || t.is_local(stream)) return;
  const DeviceStream s = stream_at(t, stream);
  const uint32_t rank = left_rank(t, stream), window = t.window[stream];
  for (uint32_t row = t.front_of(stream); row < s.n_pages && !s.is_filling(row); ++row) {
    if (s.end(row) + window > uint64_t{a.n_tokens} + 1) break;
    add_left_page(a.left, rank, s, row);
  }
}

}  // namespace

Status add_left(OpContext& cx, const AddLeftArgs& a) {
  const uint32_t n_streams = a.tables.n_layers * a.tables.n_kv_heads, streams = kBlock / kWarp;
  return launch("add_left", add_left_kernel, (n_streams + streams - 1) / streams, kBlock, 0, stream_of(cx), false, a);
}

}  // namespace weir::cuda
