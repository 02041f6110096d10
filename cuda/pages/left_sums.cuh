// Sums of the keys and values that leave the streams with windows of their own, as LeftSums::add_page adds them: token
// by token, in f32, so that the sums have the bits of the host's.
#pragma once

#include "cuda/pages/kv_rows.cuh"
#include "cuda/pages/victim.cuh"
#include "device/kernels/add_left.h"

namespace weir::cuda {

using device::AddLeftArgs;
using device::LeftAt;

Status add_left(OpContext& cx, const AddLeftArgs& a);

#ifdef __CUDACC__

// The number of a stream among those that have a window of their own. Executed by one whole warp.
__device__ inline uint32_t left_rank(const KvTables& t, uint32_t stream) {
  uint32_t n = 0;
  for (uint32_t s = threadIdx.x % kWarp; s < stream; s += kWarp) n += t.window[s] != 0 && !t.is_local(s) ? 1u : 0u;
  return sum_of_lanes(n);
}

// Adds the tokens of a table row's page. Executed by one whole warp, which alone has this stream.
__device__ inline void add_left_page(const LeftAt& left, uint32_t rank, const DeviceStream& s, uint32_t row) {
  const uint32_t lane = threadIdx.x % kWarp, d = left.head_dim, len = s.len[row];
  float* sums = left.values + size_t{rank} * 2 * d;
  with_kv_format(left.format, [&](auto format) {
    const uint16_t* page = left.pool + size_t{s.slots[row]} * page_units<format()>(d);
    for (uint32_t i = lane; i < 2 * d; i += kWarp) sums[i] = add_column<format()>(page, d, i, 0, len, sums[i]);
  });
  if (lane != 0) return;
  left.sums[rank].n_tokens += len;
  left.sums[rank].end = s.first_pos[row] + len;
}

#endif  // __CUDACC__

}  // namespace weir::cuda
