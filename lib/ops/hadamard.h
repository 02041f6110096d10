// Rotation by a Hadamard matrix, normalised: its own inverse. Heads whose size is no power of two are rotated in blocks
// of the largest power of two that divides it.
// Paper: Ashkboos et al., "QuaRot: Outlier-Free 4-Bit Inference in Rotated LLMs", arXiv:2404.00456, sec. 4: values that
// are rotated before they are quantised, and rotated back after attention.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weir {

class ThreadPool;

constexpr size_t hadamard_block(size_t head_dim) { return head_dim & (~head_dim + 1); }

// Multiplies every block of x [head_dim] by the matrix of ones and minus ones; twice is a factor of the block. Sums and
// differences of f32 in a fixed order: the bits are the same everywhere.
void add_by_hadamard(float* x, size_t head_dim);
// x: in/out [n_rows, head_dim], normalised.
void rotate_rows(ThreadPool& pool, float* x, size_t n_rows, uint32_t head_dim);

}  // namespace weir
