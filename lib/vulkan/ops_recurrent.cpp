// The ops of recurrent layers, and the gates of attention's output.
#include "vulkan/ops_recurrent.h"

#include <algorithm>
#include <bit>

#include "ops/delta_net.h"
#include "ops/head_gate.h"
#include "ops/mamba2.h"
#include "ops/short_conv.h"
#include "shaders/attn.h"
#include "shaders/recurrent.h"
#include "vulkan/ops.h"
#include "vulkan/ops_sizes.h"

namespace weir::vulkan {
namespace {

static_assert(kLengthEps == 1e-6f, "recurrent_scan.glsl has another");

Grid elements_grid(uint64_t n) {
  return {static_cast<uint32_t>(std::min<uint64_t>((n + kInvocations - 1) / kInvocations, kMaxGroups))};
}

// What delta_net and mamba2 share of the arguments. Which copy of the state is written is known when the kernel runs.
template <class Args, class Op>
Args scan_args(const Op& a, Touches& t, const float* x, uint64_t stride) {
  const uint64_t n_rows = float_bytes(uint64_t{a.conv.n_taps - 1} * a.conv.n_channels);
  const uint64_t n_sums = float_bytes(uint64_t{a.n_heads} * a.key_dim * a.value_dim);
  Args args = {};
  args.y = t.writes(a.y, float_bytes(uint64_t{a.n_tok} * a.n_heads * a.value_dim));
  args.x = t.reads(x, float_bytes((a.n_tok - 1) * stride + a.conv.n_channels));
  args.weight = t.reads(a.conv.weight, float_bytes(uint64_t{a.conv.n_channels} * a.conv.n_taps));
  args.bias = t.reads(a.conv.bias, float_bytes(a.conv.n_channels));
  for (int i = 0; i < 2; ++i) {
    args.rows[i] = t.writes(a.state.rows[i], n_rows);
    args.sums[i] = t.writes(a.state.sums[i], n_sums);
  }
  args.current = t.reads(a.state.current, sizeof(uint32_t));
  args.a = t.reads(a.a, float_bytes(a.n_heads));
  args.dt_bias = t.reads(a.dt_bias, float_bytes(a.n_heads));
  args.stride = static_cast<uint>(stride);
  args.n_tok = a.n_tok;
  args.n_channels = a.conv.n_channels;
  args.n_taps = a.conv.n_taps;
  args.n_heads = a.n_heads;
  args.key_dim = a.key_dim;
  args.value_dim = a.value_dim;
  return args;
}

// Specialisation: rows of the sums that a lane has.
Status scan(Kernel kernel, const auto& args, const Touches& t) {
  const uint32_t rows = std::max(4u, std::bit_ceil((args.key_dim + kTeamLanes - 1) / kTeamLanes));
  return context().dispatch(kernel, WeightType::kF32, {1, 1, rows}, args, t,
                            {args.n_heads, (args.value_dim + kScanColumns - 1) / kScanColumns});
}

Status check_grid(const char* op, uint32_t n_heads) {
  if (n_heads <= kMaxGroups) return {};
  return fail(WEIR_ERR_UNSUPPORTED, "Vulkan: %s of %u heads; %u are the most", op, n_heads, kMaxGroups);
}

}  // namespace

Status check_recurrent(const char* what, uint32_t key_dim, uint32_t value_dim, uint32_t n_taps) {
  if (key_dim % 4 == 0 && value_dim % 4 == 0 && key_dim - 1 < kMaxKeyDim && value_dim - 1 < kMaxValueDim &&
      n_taps - 1 < kMaxTaps)
    return {};
  return fail(WEIR_ERR_UNSUPPORTED,
              "Vulkan: %s with sums of %u x %u a head and %u taps; multiples of 4 up to %u x %u and up to %u taps are "
              "needed",
              what, key_dim, value_dim, n_taps, kMaxKeyDim, kMaxValueDim, kMaxTaps);
}

Status delta_net(OpContext&, const DeltaNetArgs& a) {
  WEIR_TRY(check_recurrent("delta_net", a.key_dim, a.value_dim, a.conv.n_taps));
  WEIR_TRY(check_grid("delta_net", a.n_heads));
  const uint32_t last = a.n_heads - 1;
  const uint64_t n_gates =
      uint64_t{a.n_tok - 1} * a.gate_stride + last / a.gate_group * a.group_stride + last % a.gate_group + 1;
  const uint64_t out_bytes = float_bytes(uint64_t{a.n_tok} * a.n_heads * a.value_dim);
  Touches scanned;
  auto args = scan_args<DeltaScanArgs>(a, scanned, a.m, a.conv.n_channels);
  args.beta = scanned.reads(a.beta, float_bytes(n_gates));
  args.alpha = scanned.reads(a.alpha, float_bytes(n_gates));
  args.n_key_heads = a.n_key_heads;
  args.grouped = a.grouped ? 1 : 0;
  args.first_k = a.n_key_heads * a.key_dim;
  args.first_v = 2 * args.first_k;
  args.gate_stride = a.gate_stride;
  args.gate_group = a.gate_group;
  args.group_stride = a.group_stride;
  WEIR_TRY(scan(Kernel::kDeltaNet, args, scanned));
  Touches t;
  const RecurrentNormPush push = {.y = t.writes(a.y, out_bytes),
                                  .z = t.reads(a.z, out_bytes),
                                  .weight = t.reads(a.norm, float_bytes(a.value_dim)),
                                  .n = a.value_dim,
                                  .n_rows = a.n_tok * a.n_heads,
                                  .n_groups = a.n_heads,
                                  .z_stride = a.n_heads * a.value_dim,
                                  .weight_stride = 0,
                                  .gate_first = 0,
                                  .eps = a.eps};
  return context().dispatch(Kernel::kRecurrentNorm, WeightType::kF32, {1}, push, t,
                            {std::min(push.n_rows, kMaxGroups)});
}

Status mamba2(OpContext&, const Mamba2Args& a) {
  WEIR_TRY(check_recurrent("mamba2", a.key_dim, a.value_dim, a.conv.n_taps));
  WEIR_TRY(check_grid("mamba2", a.n_heads));
  const uint32_t inner = a.n_heads * a.value_dim, stride = inner + a.conv.n_channels + a.n_heads;
  const float* const input = a.x + inner;
  Touches scanned;
  auto args = scan_args<MambaScanArgs>(a, scanned, input, stride);
  args.alpha = scanned.reads(input + a.conv.n_channels, float_bytes(uint64_t{a.n_tok - 1} * stride + a.n_heads));
  args.skip = scanned.reads(a.skip, float_bytes(a.n_heads));
  args.n_key_heads = a.n_groups;
  args.grouped = 1;
  args.first_k = inner;
  args.first_q = inner + a.n_groups * a.key_dim;
  args.gate_stride = stride;
  args.gate_group = a.n_heads;
  WEIR_TRY(scan(Kernel::kMamba2, args, scanned));
  Touches t;
  const RecurrentNormPush push = {.y = t.writes(a.y, float_bytes(uint64_t{a.n_tok} * inner)),
                                  .z = t.reads(a.x, float_bytes(uint64_t{a.n_tok - 1} * stride + inner)),
                                  .weight = t.reads(a.norm, float_bytes(inner)),
                                  .n = inner / a.n_groups,
                                  .n_rows = a.n_tok * a.n_groups,
                                  .n_groups = a.n_groups,
                                  .z_stride = stride,
                                  .weight_stride = inner / a.n_groups,
                                  .gate_first = 1,
                                  .eps = a.eps};
  return context().dispatch(Kernel::kRecurrentNorm, WeightType::kF32, {1}, push, t,
                            {std::min(push.n_rows, kMaxGroups)});
}

Status short_conv(OpContext&, const ShortConvArgs& a) {
  const uint64_t n = a.conv.n_channels, row_bytes = float_bytes(uint64_t{a.conv.n_taps - 1} * n);
  if (a.n_tok * 3 * n > UINT32_MAX)
    return fail(WEIR_ERR_UNSUPPORTED, "Vulkan: short_conv of %u tokens and %u channels", a.n_tok, a.conv.n_channels);
  Touches t;
  const ShortConvPush push = {.y = t.writes(a.y, float_bytes(a.n_tok * n)),
                              .x = t.reads(a.x, float_bytes(a.n_tok * 3 * n)),
                              .weight = t.reads(a.conv.weight, float_bytes(n * a.conv.n_taps)),
                              .bias = t.reads(a.conv.bias, float_bytes(n)),
                              .rows = {t.writes(a.state.rows[0], row_bytes), t.writes(a.state.rows[1], row_bytes)},
                              .current = t.reads(a.state.current, sizeof(uint32_t)),
                              .n_tok = a.n_tok,
                              .n_channels = a.conv.n_channels,
                              .n_taps = a.conv.n_taps};
  return context().dispatch(Kernel::kShortConv, WeightType::kF32, {1}, push, t,
                            elements_grid((uint64_t{a.n_tok} + a.conv.n_taps - 1) * n));
}

Status head_gate(OpContext&, const HeadGateArgs& a) {
  const uint32_t n = a.n_tok * a.n_heads;
  const uint64_t elements = uint64_t{n} * a.head_dim;
  Touches t;
  const HeadGatePush push = {t.writes(a.y, float_bytes(elements)), t.reads(a.qg, float_bytes(2 * elements)), n,
                             a.head_dim, a.apply ? 1u : 0u};
  return context().dispatch(Kernel::kHeadGate, WeightType::kF32, {1}, push, t, elements_grid(elements));
}

}  // namespace weir::vulkan
