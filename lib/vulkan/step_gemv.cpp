#include "vulkan/step_gemv.h"

#include <algorithm>
#include <bit>

#include "vulkan/ops.h"
#include "vulkan/ops_sizes.h"

namespace weir::vulkan {
namespace {

// Every workgroup makes integers of the whole input, so there should be few and large ones: one of 512 invocations for
// each of the 132 multiprocessors of the largest device that was measured.
constexpr uint32_t kStepInvocations = 512, kMostStepInvocations = 132 * kStepInvocations;

uint32_t step_invocations() { return std::min(kStepInvocations, std::bit_floor(context().device.traits.invocations)); }

// Vectors of 16 bytes are loaded.
bool is_aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

// Specialisation: 2048 columns for each.
uint32_t width_of(uint32_t n_cols) { return std::bit_ceil((n_cols + 2047) / 2048); }

// As many rows to each subgroup.
Grid step_grid(uint32_t n_rows) {
  const Device& d = context().device;
  const uint32_t at_once = step_invocations() / d.traits.least_lanes;
  const uint32_t most = at_once * std::min(kMostStepInvocations / step_invocations(), d.most_groups);
  const uint32_t rows = (n_rows + most - 1) / most;
  return {(n_rows + at_once * rows - 1) / (at_once * rows), 1};
}

struct Input {
  const float* x;
  const float* norm;
  uint32_t n_cols;
  float eps;
};

// Parts [first, end) of one type.
Status multiply(const Input& in, const MatmulPart* part, float* const* y, uint32_t n) {
  StepGemvPush push = {};
  Touches t;
  uint32_t n_rows = 0;
  for (uint32_t i = 0; i < n; ++i) {
    const Weight& w = part[i].w;
    push.y[i] = t.writes(y[i], float_bytes(w.n_rows));
    push.w[i] = t.reads(w.data, weight_bytes(w));
    push.bias[i] = t.reads(part[i].bias, float_bytes(w.n_rows));
    push.n_rows[i] = w.n_rows;
    if (part[i].accumulate) push.accumulate |= 1u << i;
    n_rows += w.n_rows;
  }
  push.x = t.reads(in.x, float_bytes(in.n_cols));
  push.norm = t.reads(in.norm, float_bytes(in.n_cols));
  push.n_blocks = in.n_cols / 32;
  push.eps = in.eps;
  return context().dispatch(Kernel::kStepGemv, part[0].w.type, {width_of(in.n_cols), 1, 1, step_invocations()}, push, t,
                            step_grid(n_rows));
}

Status multiply_glu(const Input& in, const device::GemvArgs& a, float* y) {
  const MatmulPart &gate = a.part[0], &up = a.part[1];
  const uint32_t n_rows = gate.w.n_rows;
  Touches t;
  const StepGluPush push = {t.writes(y, float_bytes(n_rows)),
                            t.reads(in.x, float_bytes(in.n_cols)),
                            t.reads(in.norm, float_bytes(in.n_cols)),
                            t.reads(gate.w.data, weight_bytes(gate.w)),
                            t.reads(up.w.data, weight_bytes(up.w)),
                            t.reads(gate.bias, float_bytes(n_rows)),
                            t.reads(up.bias, float_bytes(n_rows)),
                            n_rows,
                            in.n_cols / 32,
                            static_cast<uint>(a.activation),
                            in.eps};
  return context().dispatch(Kernel::kStepGlu, gate.w.type, {width_of(in.n_cols), 1, 1, step_invocations()}, push, t,
                            step_grid(n_rows));
}

Status multiply_column(const device::GemvArgs& a, const float* x, float* const* y) {
  const Input in = {x, a.norm, a.part[0].w.n_cols, a.eps};
  if (a.glu) return multiply_glu(in, a, y[0]);
  for (uint32_t i = 0, n = 0; i < a.n_parts; i += n) {
    for (n = 1; i + n < a.n_parts && a.part[i + n].w.type == a.part[i].w.type;) ++n;
    WEIR_TRY(multiply(in, a.part + i, y + i, n));
  }
  return {};
}

}  // namespace

bool has_step_gemv(const device::GemvArgs& a) {
  const uint32_t n_cols = a.part[0].w.n_cols;
  if (!context().device.has_dot || n_cols == 0 || n_cols > kMostStepColumns) return false;
  if (a.glu && a.part[0].w.type != a.part[1].w.type) return false;
  if (!is_aligned(a.x) || !is_aligned(a.norm)) return false;
  for (uint32_t i = 0; i < a.n_more; ++i)
    if (!is_aligned(a.more[i].x)) return false;
  return std::all_of(a.part, a.part + a.n_parts, [&](const MatmulPart& part) {
    return part.w.n_rows > 0 && part.w.n_cols == n_cols && is_aligned(part.w.data) &&
           shader_code(Kernel::kStepGemv, part.w.type).words != nullptr;
  });
}

Status step_gemv(const device::GemvArgs& a) {
  for (uint32_t i = 0; i < a.n_parts; ++i) WEIR_TRY(check_weight(a.part[i].w));
  float* const y[3] = {a.part[0].y, a.part[1].y, a.part[2].y};
  WEIR_TRY(multiply_column(a, a.x, y));
  for (uint32_t i = 0; i < a.n_more; ++i) WEIR_TRY(multiply_column(a, a.more[i].x, a.more[i].y));
  return {};
}

}  // namespace weir::vulkan
