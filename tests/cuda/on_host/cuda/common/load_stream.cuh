// Replaces cuda/common/load_stream.cuh where device code is compiled for the host: plain loads. Addresses must be aligned
// as a GPU needs them; a load at another address is counted.
#pragma once

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

}  // namespace weir::cuda
