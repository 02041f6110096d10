// GEMVs of decode steps: which kernels compute them, in which launches. gemv_kernel.cuh has the kernels.
#include "cuda/matmul/gemv.cuh"

#include "cuda/common/device.cuh"
#include "cuda/matmul/gemv_kernel.cuh"
#include "cuda/ops.h"
#include "device/kernels/gemv.h"

namespace weir::cuda {

// In sources of their own.
#define WEIR_QUANT(Name, text, gguf_id, block_weights, block_bytes) \
  extern template GemvOfType gemv_of_type<Format<WeightType::k##Name>>();
#include "quant/quants.inc"
#undef WEIR_QUANT

namespace {

using gemv_kernels::AllColumns;
using gemv_kernels::input_room;

GemvOfType of_type(WeightType type) {
  switch (type) {
#define WEIR_QUANT(Name, text, gguf_id, block_weights, block_bytes) \
  case WeightType::k##Name:                                         \
    return gemv_of_type<Format<WeightType::k##Name>>();
#include "quant/quants.inc"
#undef WEIR_QUANT
  }
  return {};
}

// Columns of the kernel that computes n columns.
constexpr uint32_t kernel_columns(uint32_t n) { return n <= 2 ? n : n <= 4 ? 4 : kMaxColumns; }

// Whether the inputs of n columns fit into shared memory together.
bool fit_together(WeightType type, uint32_t n, uint32_t n_cols) {
  const GemvOfType t = of_type(type);
  const uint32_t unroll = n == 1 ? 1 : gemv_kernels::unroll_of_columns(kernel_columns(n), t.integer, t.registers);
  return size_t{n} * column_bytes(t.input, n_cols, unroll) <= input_room(t.min_entry_bytes);
}

// Number of groups, of about equal size, into which the columns are divided so that the inputs of each group fit into
// shared memory together. Every group reads the weights.
uint32_t groups_of(WeightType type, const AllColumns& all) {
  const auto fits_in = [&](uint32_t n_groups) {
    const uint32_t least = all.n_columns / n_groups, most = (all.n_columns + n_groups - 1) / n_groups;
    return fit_together(type, least, all.n_cols) && fit_together(type, most, all.n_cols);
  };
  uint32_t n_groups = 1;
  while (n_groups < all.n_columns && !fits_in(n_groups)) ++n_groups;
  return n_groups;
}

// The parts of the type of part `i`, which are marked in `done`, for one launch.
AllColumns parts_of_type(const GemvArgs& a, uint32_t i, bool (&done)[3]) {
  AllColumns k = {};
  k.n_cols = a.part[i].w.n_cols;
  k.norm = a.norm;
  k.eps = a.eps;
  k.activation = a.activation;
  k.n_columns = 1 + a.n_more;
  k.x[0] = a.x;
  for (uint32_t c = 0; c < a.n_more; ++c) k.x[1 + c] = a.more[c].x;
  uint32_t n = 0, rows = 0;
  for (uint32_t j = i; j < a.n_parts; ++j) {
    if (a.part[j].w.type != a.part[i].w.type || (a.glu && j > 1)) continue;
    done[j] = true;
    rows = a.glu ? a.part[j].w.n_rows : rows + a.part[j].w.n_rows;
    k.data[n] = a.part[j].w.data;
    k.bias[n] = a.part[j].bias;
    k.y[0][n] = a.part[j].y;
    for (uint32_t c = 0; c < a.n_more; ++c) k.y[1 + c][n] = a.more[c].y[j];
    k.accumulate[n] = a.part[j].accumulate;
    k.end_row[n++] = rows;
  }
  for (; n < 3; ++n) {
    k.data[n] = k.data[n - 1];
    k.end_row[n] = rows;
  }
  return k;
}

}  // namespace

uint32_t gemv_max_cols(WeightType type) {
  const GemvOfType t = of_type(type);
  return static_cast<uint32_t>(input_room(t.min_entry_bytes) / column_bytes(t.input, 1, 1)) * kGroupUnits *
         t.input.weights;
}

Status gemv(OpContext& cx, const GemvArgs& a) {
  if (a.n_more >= kMaxColumns)
    return fail(WEIR_ERR_INTERNAL, "gemv: %u columns, at most %u", a.n_more + 1, kMaxColumns);
  bool done[3] = {};
  bool overlap = a.overlap;
  for (uint32_t i = 0; i < a.n_parts; ++i) {
    if (done[i]) continue;
    const WeightType type = a.part[i].w.type;
    const AllColumns all = parts_of_type(a, i, done);
    for (uint32_t left = groups_of(type, all), first = 0; left > 0; --left) {
      const uint32_t n = (all.n_columns - first + left - 1) / left;
      const uint32_t columns = kernel_columns(n);
      const GemvOfType kernels = of_type(type);
      if (kernels.find == nullptr) return fail(WEIR_ERR_INTERNAL, "gemv: weight type %d", static_cast<int>(type));
      WEIR_TRY(kernels.find(a.glu, columns, all.n_cols)(cx, all, first, n, overlap));
      first += n;
      overlap = true;
    }
  }
  return {};
}

}  // namespace weir::cuda
