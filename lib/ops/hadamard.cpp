// The fast Hadamard transform: butterflies of growing distance.
#include "ops/hadamard.h"

#include <algorithm>
#include <cmath>

#include "core/thread_pool.h"

namespace weir {
namespace {

// Rows of one task; fewer are done by the calling thread.
constexpr size_t kTaskRows = 512;

}  // namespace

void add_by_hadamard(float* x, size_t head_dim) {
  const size_t block = hadamard_block(head_dim);
  for (size_t half = 1; half < block; half *= 2) {
    for (size_t first = 0; first < head_dim; first += 2 * half) {
      for (size_t i = first; i < first + half; ++i) {
        const float a = x[i], b = x[i + half];
        x[i] = a + b;
        x[i + half] = a - b;
      }
    }
  }
}

void rotate_rows(ThreadPool& pool, float* x, size_t n_rows, uint32_t head_dim) {
  const float factor = 1.0f / std::sqrt(static_cast<float>(hadamard_block(head_dim)));
  const auto rotate = [&](size_t begin, size_t end) {
    for (size_t row = begin; row < end; ++row) add_by_hadamard(x + row * head_dim, head_dim);
    for (size_t i = begin * head_dim; i < end * head_dim; ++i) x[i] *= factor;
  };
  if (n_rows <= kTaskRows) return rotate(0, n_rows);
  pool.parallel_for((n_rows + kTaskRows - 1) / kTaskRows,
                    [&](size_t task, size_t) { rotate(task * kTaskRows, std::min(n_rows, (task + 1) * kTaskRows)); });
}

}  // namespace weir
