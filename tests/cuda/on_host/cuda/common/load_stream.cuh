// Replaces cuda/common/load_stream.cuh where device code is compiled for the host: plain loads. Loads from addresses
// that a GPU would not accept, for lack of alignment, are counted.
#pragma once

#include <cstring>

#include "cuda/common/base.cuh"

namespace weir::cuda {

inline uint32_t misaligned_loads = 0;

template <class T>
T load_stream(const T* p) {
  if (reinterpret_cast<uintptr_t>(p) % sizeof(T) != 0) ++misaligned_loads;
  T v;
  std::memcpy(&v, p, sizeof(T));
  return v;
}

inline void prefetch_l2(const void*) {}

}  // namespace weir::cuda
