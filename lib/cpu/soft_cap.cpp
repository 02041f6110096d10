// Soft caps of output logits, vectorised; a large vocabulary is divided among the threads.
#include "cpu/soft_cap.h"

#include <algorithm>

#include "cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/soft_cap.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "cpu/soft_cap-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {

void cap_part(float cap, float* x, size_t n) { cap_logits(cap, x, n); }

}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {
namespace {

HWY_EXPORT(cap_part);

// Elements of a task: ten microseconds of work.
constexpr size_t kTaskElements = 8192;

}  // namespace

Status soft_cap(OpContext& cx, const SoftCapArgs& a) {
  const auto cap = HWY_DYNAMIC_DISPATCH(cap_part);
  cx.pool->parallel_for((size_t{a.n} + kTaskElements - 1) / kTaskElements, [&](size_t task, size_t) {
    const size_t begin = task * kTaskElements;
    cap(a.cap, a.x + begin, std::min(kTaskElements, a.n - begin));
  });
  return {};
}

}  // namespace weir::cpu
#endif  // HWY_ONCE
