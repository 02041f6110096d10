// Weight matrices for op tests: random blocks at an unaligned address that end right before a page that must not be
// touched.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ops/ops.h"
#include "quant/random_blocks.h"
#include "tests/ops/harness.h"

namespace weir::test {

// Memory that is followed by a page that cannot be read.
class GuardedBytes {
 public:
  explicit GuardedBytes(size_t n) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t readable = (n + page - 1) / page * page;
    mapped_ = readable + page;
    map_ = static_cast<uint8_t*>(mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    assert_true(map_ != MAP_FAILED);
    assert_int_equal(mprotect(map_ + readable, page, PROT_NONE), 0);
    data_ = map_ + readable - n;
  }
  ~GuardedBytes() {
    if (map_ != nullptr) munmap(map_, mapped_);
  }
  GuardedBytes(GuardedBytes&& o) noexcept : map_(o.map_), data_(o.data_), mapped_(o.mapped_) { o.map_ = nullptr; }
  GuardedBytes& operator=(GuardedBytes&&) = delete;
  uint8_t* data() const { return data_; }

 private:
  uint8_t* map_;
  uint8_t* data_;
  size_t mapped_;
};

class Matrix {
 public:
  Matrix(WeightType type, uint32_t n_rows, uint32_t n_cols, uint64_t seed)
      : row_bytes_(weight_row_bytes(type, n_cols)), bytes_(n_rows * row_bytes_) {
    w_ = {bytes_.data(), type, n_rows, n_cols, row_bytes_};
    const float scale = 1.0f / std::sqrt(static_cast<float>(n_cols));
    for (uint32_t r = 0; r < n_rows; ++r)
      fill_random_blocks(type, bytes_.data() + r * row_bytes_, n_cols, seed * 1000003 + r, scale);
  }
  const Weight& w() const { return w_; }
  uint8_t* data() const { return bytes_.data(); }
  // Rows [first, first + n) as a matrix of their own.
  Weight rows(uint32_t first, uint32_t n) const {
    return {w_.data + first * row_bytes_, w_.type, n, w_.n_cols, row_bytes_};
  }

 private:
  size_t row_bytes_;
  GuardedBytes bytes_;
  Weight w_;
};

// Rows of a test's matrix: fewer on Vulkan, whose driver may compute on the processor.
inline uint32_t rows_on(const Backend& backend, uint32_t n_rows, uint32_t n_cols) {
  constexpr uint32_t kMaxWeights = 64 * 1024;
  return backend.device == WEIR_DEVICE_VULKAN ? std::clamp(kMaxWeights / n_cols, 1u, n_rows) : n_rows;
}

inline OpShapes matmul_shapes(uint32_t n_cols, uint32_t n_tok, uint32_t n_threads) {
  OpShapes s;
  s.n_threads = n_threads;
  s.max_tok = n_tok;
  s.max_cols = n_cols;
  return s;
}

// y of one matrix. With accumulate, `y` holds the previous contents.
inline std::vector<float> multiply(const Backend& backend, const Weight& w, const std::vector<float>& x, uint32_t n_tok,
                                   uint32_t n_threads = 2, const float* bias = nullptr,
                                   const std::vector<float>* before = nullptr) {
  Machine machine(backend, matmul_shapes(w.n_cols, n_tok, n_threads));
  std::vector<float> y = before != nullptr ? *before : std::vector<float>(size_t{n_tok} * w.n_rows, NAN);
  machine.check(backend.ops.matmul(machine.cx(), {{{w, bias, y.data(), before != nullptr}}, 1, x.data(), n_tok}));
  return y;
}

}  // namespace weir::test
