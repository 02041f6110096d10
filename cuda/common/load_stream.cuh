// Streaming loads that bypass L1: weights are read once per step, L1 is for everything else.
//
// A file of its own, because it is the one part of the weight formats that only a GPU can execute: tests that run the
// formats on the host (tests/cuda/test_weight_formats.cpp) replace it.
#pragma once

#include "cuda/common/base.cuh"

namespace weir::cuda {

#ifdef __CUDACC__

__device__ inline uint4 load_stream(const uint4* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}
__device__ inline uint2 load_stream(const uint2* p) {
  uint2 v;
  asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));
  return v;
}
__device__ inline uint32_t load_stream(const uint32_t* p) {
  uint32_t v;
  asm volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(v) : "l"(p));
  return v;
}
__device__ inline uint16_t load_stream(const uint16_t* p) {
  uint16_t v;
  asm volatile("ld.global.nc.L1::no_allocate.u16 %0, [%1];" : "=h"(v) : "l"(p));
  return v;
}
__device__ inline uint8_t load_stream(const uint8_t* p) {
  uint16_t v;  // there is no register of eight bits
  asm volatile("ld.global.nc.L1::no_allocate.u8 %0, [%1];" : "=h"(v) : "l"(p));
  return static_cast<uint8_t>(v);
}

// Begins to bring the line at p into the L2 cache.
__device__ inline void prefetch_l2(const void* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }

#endif  // __CUDACC__

}  // namespace weir::cuda
