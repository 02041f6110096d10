#include "vulkan/step_gemv.h"

#include <algorithm>
#include <bit>

#include "core/memory.h"
#include "device/kernels/gemv.h"
#include "models/model.h"
#include "ops/matmul.h"
#include "vulkan/ops.h"
#include "vulkan/ops_sizes.h"

namespace weir::vulkan {
namespace {

// Every workgroup makes integers of the whole input, so there should be few and large ones: one of 512 invocations for
// each of the 132 multiprocessors of the largest device that was measured.
constexpr uint32_t kStepInvocations = 512, kMaxStepInvocations = 132 * kStepInvocations;

uint32_t step_invocations() { return std::min(kStepInvocations, std::bit_floor(context().device.traits.invocations)); }

// Vectors of 16 bytes are loaded.
bool is_aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

// Specialisation: 2048 columns for each.
uint32_t width_of(uint32_t n_cols) { return std::bit_ceil((n_cols + 2047) / 2048); }

bool has_integers(const Weight& w) {
  return context().device.has_dot && w.n_rows > 0 && w.n_cols > 0 && w.n_cols <= kMaxStepColumns &&
         shader_code(Kernel::kStepGemv, w.type).words != nullptr;
}

// As many rows to each subgroup.
Grid step_grid(uint32_t n_rows) {
  const Device& d = context().device;
  const uint32_t at_once = step_invocations() / d.traits.min_lanes;
  const uint32_t most = at_once * std::min(kMaxStepInvocations / step_invocations(), d.max_groups);
  const uint32_t rows = (n_rows + most - 1) / most;
  return {(n_rows + at_once * rows - 1) / (at_once * rows), 1};
}

struct Input {
  const float* x;
  const float* norm;
  uint32_t n_cols;
  float eps;
};

// `n` parts of one type.
Status multiply(const Input& in, const MatmulPart* part, uint32_t n) {
  StepGemvPush push = {};
  Touches t;
  uint32_t n_rows = 0;
  for (uint32_t i = 0; i < n; ++i) {
    const Weight& w = part[i].w;
    push.y[i] = t.writes(part[i].y, float_bytes(w.n_rows));
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
  const StepGluPush push = {.y = t.writes(y, float_bytes(n_rows)),
                            .x = t.reads(in.x, float_bytes(in.n_cols)),
                            .norm = t.reads(in.norm, float_bytes(in.n_cols)),
                            .gate = t.reads(gate.w.data, weight_bytes(gate.w)),
                            .up = t.reads(up.w.data, weight_bytes(up.w)),
                            .gate_bias = t.reads(gate.bias, float_bytes(n_rows)),
                            .up_bias = t.reads(up.bias, float_bytes(n_rows)),
                            .n_rows = n_rows,
                            .n_blocks = in.n_cols / 32,
                            .activation = static_cast<uint>(a.activation),
                            .eps = in.eps};
  return context().dispatch(Kernel::kStepGlu, gate.w.type, {width_of(in.n_cols), 1, 1, step_invocations()}, push, t,
                            step_grid(n_rows));
}

Status multiply_one(const device::GemvArgs& a) {
  const Input in = {a.x, a.norm, a.part[0].w.n_cols, a.eps};
  if (a.glu) return multiply_glu(in, a, a.part[0].y);
  for (uint32_t i = 0, n = 0; i < a.n_parts; i += n) {
    for (n = 1; i + n < a.n_parts && a.part[i + n].w.type == a.part[i].w.type;) ++n;
    WEIR_TRY(multiply(in, a.part + i, n));
  }
  return {};
}

// --------------------------------------------------------------------------------------------------- several inputs

// Size of a packed input of n blocks: 64 bytes of values, a scale and a sum for each.
uint64_t packed_input_bytes(uint32_t n_blocks) { return align_up(uint64_t{n_blocks} * (64 + 8), 16); }

struct Packed {
  const std::byte* inputs;
  uint32_t n_columns, n_blocks;
  uint64_t bytes() const { return n_columns * packed_input_bytes(n_blocks); }
  uint32_t stride() const { return static_cast<uint32_t>(packed_input_bytes(n_blocks) / 16); }
};

// The variant of a kernel that multiplies them.
Variant many_variant(const Packed& p) { return {.lanes = p.n_columns, .invocations = step_invocations()}; }

Status pack(const device::GemvArgs& a, const Packed& p, std::byte* out) {
  const uint32_t n_cols = a.part[0].w.n_cols;
  Touches t;
  StepPackPush push = {};
  push.inputs = t.writes(out, p.bytes());
  push.norm = t.reads(a.norm, float_bytes(n_cols));
  for (uint32_t i = 0; i < p.n_columns; ++i) push.x[i] = t.reads(i == 0 ? a.x : a.more[i - 1].x, float_bytes(n_cols));
  push.n_blocks = p.n_blocks;
  push.stride = p.stride();
  push.eps = a.eps;
  return context().dispatch(Kernel::kStepPack, WeightType::kF32, {width_of(n_cols), 1, 1, step_invocations()}, push, t,
                            {p.n_columns, 1});
}

// Where a part's results go.
void set_results(const device::GemvArgs& a, uint32_t part, uvec2* y, Touches& t) {
  const uint64_t bytes = float_bytes(a.part[part].w.n_rows);
  y[0] = t.writes(a.part[part].y, bytes);
  for (uint32_t i = 0; i < a.n_more; ++i) y[i + 1] = t.writes(a.more[i].y[part], bytes);
}

Status multiply_part(const device::GemvArgs& a, uint32_t part, const Packed& p) {
  const MatmulPart& m = a.part[part];
  Touches t;
  StepGemvManyPush push = {};
  set_results(a, part, push.y, t);
  push.inputs = t.reads(p.inputs, p.bytes());
  push.w = t.reads(m.w.data, weight_bytes(m.w));
  push.bias = t.reads(m.bias, float_bytes(m.w.n_rows));
  push.n_rows = m.w.n_rows;
  push.n_blocks = p.n_blocks;
  push.stride = p.stride();
  push.accumulate = m.accumulate ? 1 : 0;
  return context().dispatch(Kernel::kStepGemvMany, m.w.type, many_variant(p), push, t, step_grid(m.w.n_rows));
}

Status multiply_glu_many(const device::GemvArgs& a, const Packed& p) {
  const MatmulPart &gate = a.part[0], &up = a.part[1];
  Touches t;
  StepGluManyPush push = {};
  set_results(a, 0, push.y, t);
  push.inputs = t.reads(p.inputs, p.bytes());
  push.gate = t.reads(gate.w.data, weight_bytes(gate.w));
  push.up = t.reads(up.w.data, weight_bytes(up.w));
  push.gate_bias = t.reads(gate.bias, float_bytes(gate.w.n_rows));
  push.up_bias = t.reads(up.bias, float_bytes(gate.w.n_rows));
  push.n_rows = gate.w.n_rows;
  push.n_blocks = p.n_blocks;
  push.stride = p.stride();
  push.activation = static_cast<uint>(a.activation);
  return context().dispatch(Kernel::kStepGluMany, gate.w.type, many_variant(p), push, t, step_grid(gate.w.n_rows));
}

}  // namespace

bool most_have_step_gemv(const ModelWeights& weights) {
  uint64_t all = 0, with = 0;
  for (const Layer& layer : weights.layers) {
    for (const Stage& stage : layer.stages()) {
      if (stage.kind == Stage::Kind::kExperts) continue;
      for (const StagePart* part = stage.part; part != stage.part + stage.n_parts; ++part) {
        all += weight_bytes(part->w);
        if (has_integers(part->w)) with += weight_bytes(part->w);
      }
    }
  }
  return 2 * with >= all;
}

bool has_step_gemv(const device::GemvArgs& a) {
  const uint32_t n_cols = a.part[0].w.n_cols;
  if (a.glu && a.part[0].w.type != a.part[1].w.type) return false;
  if (!is_aligned(a.x) || !is_aligned(a.norm)) return false;
  for (uint32_t i = 0; i < a.n_more; ++i)
    if (!is_aligned(a.more[i].x)) return false;
  return std::all_of(a.part, a.part + a.n_parts, [&](const MatmulPart& part) {
    return has_integers(part.w) && part.w.n_cols == n_cols && is_aligned(part.w.data);
  });
}

uint64_t packed_bytes(uint32_t n_cols) { return kMaxColumns * packed_input_bytes((n_cols + 31) / 32); }

Status step_gemv(const device::GemvArgs& a, std::byte* packed) {
  for (uint32_t i = 0; i < a.n_parts; ++i) WEIR_TRY(check_weight(a.part[i].w));
  if (a.n_more == 0) return multiply_one(a);
  const Packed p = {packed, a.n_more + 1, a.part[0].w.n_cols / 32};
  WEIR_TRY(pack(a, p, packed));
  if (a.glu) return multiply_glu_many(a, p);
  for (uint32_t i = 0; i < a.n_parts; ++i) WEIR_TRY(multiply_part(a, i, p));
  return {};
}

}  // namespace weir::vulkan
