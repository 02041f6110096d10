// Rotation by a Hadamard matrix, normalised: its own inverse. Heads whose size is no power of two are rotated in blocks
// of the largest power of two that divides it.
// Paper: Ashkboos et al., "QuaRot: Outlier-Free 4-Bit Inference in Rotated LLMs", arXiv:2404.00456, sec. 4: values that
// are rotated before they are quantised, and rotated back after attention.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weir {

class ThreadPool;

// x: in/out [n_rows, head_dim]. Sums in f32, in the same order for every row.
void rotate_rows(ThreadPool& pool, float* x, size_t n_rows, uint32_t head_dim);

constexpr uint32_t hadamard_block(uint32_t head_dim) { return head_dim & (~head_dim + 1); }

}  // namespace weir
