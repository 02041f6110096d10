// Thread block clusters (sm_90 and later): blocks that run at the same time on neighbouring SMs and can access each
// other's shared memory (distributed shared memory).
#pragma once

#include "cuda/common/base.cuh"

namespace weir::cuda {

#if defined(__CUDACC__) && __CUDA_ARCH__ >= 900

__device__ inline uint32_t cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

__device__ inline uint32_t cluster_blocks() {
  uint32_t n;
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(n));
  return n;
}

// Maps `p`, an address in this block's shared memory, to the same variable in the block of rank `rank`.
template <class T>
__device__ inline T* shared_of(T* p, uint32_t rank) {
  T* there;
  asm volatile("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(p), "r"(rank));
  return there;
}

// A barrier of all threads of the cluster, split in two: everything written before the arrival, to any memory, is
// visible after the wait.
__device__ inline void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
__device__ inline void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// The arrival for the beginning of a kernel, when nothing has been written yet: without release semantics.
__device__ inline void cluster_begin() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }

__device__ inline void cluster_sync() {
  cluster_arrive();
  cluster_wait();
}

#endif

}  // namespace weir::cuda
