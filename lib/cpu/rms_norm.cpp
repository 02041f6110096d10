// Root mean square normalisation, vectorised; many rows are divided among the threads.
#include "cpu/rms_norm.h"

#include <algorithm>
#include <cmath>

#include "cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/rms_norm.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "cpu/simd-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {

void norm_rows(const RmsNormArgs& a, size_t begin, size_t end) {
  for (size_t row = begin; row < end; ++row) {
    const float* x = a.x + row * a.n;
    const auto inverse = static_cast<float>(1.0 / std::sqrt(sum_squares(x, a.n) / a.n + double{a.eps}));
    (a.accumulate ? add_scaled_by : scale_by)(x, inverse, a.weight, a.y + row * a.n, a.n);
  }
}

}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {
namespace {

HWY_EXPORT(norm_rows);

// Elements below which a task is not worth handing to another thread: a microsecond of work.
constexpr size_t kTaskElements = 8192;

}  // namespace

Status rms_norm(OpContext& cx, const RmsNormArgs& a) {
  const auto rows = HWY_DYNAMIC_DISPATCH(norm_rows);
  const size_t task_rows = kTaskElements / std::max(a.n, 1u) + 1;
  if (a.n_tok <= task_rows) {
    rows(a, 0, a.n_tok);
    return {};
  }
  cx.pool->parallel_for((a.n_tok + task_rows - 1) / task_rows, [&](size_t task, size_t) {
    rows(a, task * task_rows, std::min<size_t>(a.n_tok, (task + 1) * task_rows));
  });
  return {};
}

}  // namespace weir::cpu
#endif  // HWY_ONCE
