// The fast Hadamard transform: butterflies of growing distance.
#include "ops/hadamard.h"

#include <algorithm>
#include <cmath>

#include "core/thread_pool.h"

namespace weir {
namespace {

void rotate_block(float* x, uint32_t n, float factor) {
  for (uint32_t half = 1; half < n; half *= 2) {
    for (uint32_t i = 0; i < n; i += 2 * half) {
      for (uint32_t j = i; j < i + half; ++j) {
        const float a = x[j], b = x[j + half];
        x[j] = a + b;
        x[j + half] = a - b;
      }
    }
  }
  for (uint32_t i = 0; i < n; ++i) x[i] *= factor;
}

// Rows of one task; fewer are done by the calling thread.
constexpr size_t kTaskRows = 512;

}  // namespace

void rotate_rows(ThreadPool& pool, float* x, size_t n_rows, uint32_t head_dim) {
  const uint32_t block = hadamard_block(head_dim);
  const float factor = 1.0f / std::sqrt(static_cast<float>(block));
  const auto rotate = [&](size_t begin, size_t end) {
    for (size_t i = begin * head_dim; i < end * head_dim; i += block) rotate_block(x + i, block, factor);
  };
  if (n_rows <= kTaskRows) return rotate(0, n_rows);
  pool.parallel_for((n_rows + kTaskRows - 1) / kTaskRows, [&](size_t task, size_t) {
    rotate(task * kTaskRows, std::min(n_rows, (task + 1) * kTaskRows));
  });
}

}  // namespace weir
