// The byte permutation of the hardware, with all it can do: CUDA's own __byte_perm first clears the bits of the
// selector that choose the sign, one more instruction.
//
// A file of its own, because only a GPU can execute it: tests that run device code on the host replace it.
#pragma once

#include <cstdint>

namespace weir::cuda {

#ifdef __CUDACC__

// Byte i of the result is that of the eight bytes of y:x (x has the low four) whose number is in the low three bits of
// nibble i of the selector; where the nibble's bit 3 is set, it is eight copies of that byte's highest bit. The upper
// 16 bits of the selector are ignored.
__device__ inline uint32_t permute(uint32_t x, uint32_t y, uint32_t selector) {
  uint32_t out;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(out) : "r"(x), "r"(y), "r"(selector));
  return out;
}

#endif  // __CUDACC__

}  // namespace weir::cuda
