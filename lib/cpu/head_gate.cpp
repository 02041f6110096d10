// Queries and gates of attention heads, vectorised; many heads are divided among the threads.
#include "cpu/head_gate.h"

#include <algorithm>
#include <cmath>

#include "cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/head_gate.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "cpu/recurrent-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {

void gate_rows(const HeadGateArgs& a, size_t begin, size_t end) {
  const DF df;
  const size_t n = a.head_dim;
  for (size_t head = begin; head < end; ++head) {
    const float* q = a.qg + head * 2 * n;
    float* y = a.y + head * n;
    if (!a.apply) {
      std::copy_n(q, n, y);
      continue;
    }
    each_vector(n, [&](size_t i, const auto& io)
                       HWY_ATTR { io.store(hn::Mul(io.load(y + i), sigmoid(df, io.load(q + n + i))), y + i); });
  }
}

}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {
namespace {

HWY_EXPORT(gate_rows);

// Heads below which a task is not worth handing to another thread: a microsecond of work or more.
constexpr size_t kTaskHeads = 32;

}  // namespace

Status head_gate(OpContext& cx, const HeadGateArgs& a) {
  const auto rows = HWY_DYNAMIC_DISPATCH(gate_rows);
  const size_t n_heads = size_t{a.n_tok} * a.n_heads;
  cx.pool->parallel_for((n_heads + kTaskHeads - 1) / kTaskHeads, [&](size_t task, size_t) {
    rows(a, task * kTaskHeads, std::min(n_heads, (task + 1) * kTaskHeads));
  });
  return {};
}

}  // namespace weir::cpu
#endif  // HWY_ONCE
