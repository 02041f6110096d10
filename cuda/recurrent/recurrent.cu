// The ops of recurrent layers. For one token: a kernel in which a block takes a head, and in Mamba-2, whose norm is of
// a group of heads, a second one for it. For prompts: a scan over the tokens in which a block takes some columns of a
// head, then the norms. Sums are kept in f32; what a pass reads and writes is chosen by the state's `current`, which
// the kernels read.
//
// Method: Yang et al., arXiv:2412.06464, and Dao and Gu, arXiv:2405.21060, in their recurrent form: a column of 128
// keys takes about 200 cycles a token, and a layer has more columns than the GPU has schedulers.
#include "cuda/ops.h"
#include "cuda/recurrent/finish.cuh"
#include "cuda/recurrent/scan.cuh"
#include "cuda/recurrent/short_conv.cuh"
#include "cuda/recurrent/step.cuh"
#include "ops/head_gate.h"

namespace weir::cuda {
namespace {

// blockIdx.x is the head.
template <bool kDelta, uint32_t kTaps>
__global__ void __launch_bounds__(kStepThreads) step_kernel(const RecurrentArgs a) {
  __shared__ StepShared shared;
  start_next();
  step_head<kDelta, kTaps>(a, blockIdx.x, shared);
}

// blockIdx.x is the head, blockIdx.y the block of columns.
template <bool kDelta, uint32_t kTaps, uint32_t kRowQuads>
__global__ void __launch_bounds__(kScanThreads) scan_kernel(const RecurrentArgs a) {
  __shared__ ScanShared<kRowQuads> shared;
  start_next();
  wait_for_previous();
  scan_columns<kDelta, kTaps>(a, blockIdx.x, blockIdx.y * kScanColumns, shared);
}

__global__ void finish_delta_kernel(const RecurrentArgs a) {
  start_next();
  wait_for_previous();
  const size_t head = size_t{blockIdx.x} * kFinishWarps + threadIdx.x / kWarp;
  if (head < size_t{a.n_tok} * a.n_heads) finish_delta_head(a, head);
}

// blockIdx.x is the token, blockIdx.y the group.
__global__ void finish_mamba_kernel(const RecurrentArgs a) {
  __shared__ float sums[kFinishWarps];
  start_next();
  wait_for_previous();
  finish_mamba_group(a, blockIdx.x, blockIdx.y, sums);
}

Status check_sizes(const char* op, uint32_t key_dim, uint32_t value_dim, uint32_t n_taps) {
  if (has_recurrent_kernels(key_dim, value_dim, n_taps)) return {};
  return fail(WEIR_ERR_UNSUPPORTED,
              "CUDA: %s of %u x %u sums and %u taps; multiples of 4 up to %u x %u and up to %u taps are needed", op,
              key_dim, value_dim, n_taps, kMaxKeyDim, kMaxValueDim, kMaxTaps);
}

template <bool kDelta>
Status step(OpContext& cx, const RecurrentArgs& a) {
  const auto kernel = a.conv.n_taps == 4 ? step_kernel<kDelta, 4> : step_kernel<kDelta, 0>;
  return launch("step of a recurrent layer", kernel, dim3(a.n_heads), dim3(kStepThreads), 0, stream_of(cx),
                !a.state.forked, a);
}

template <bool kDelta, uint32_t kTaps>
Status scan(OpContext& cx, const RecurrentArgs& a) {
  const auto kernel = a.key_dim <= 64    ? scan_kernel<kDelta, kTaps, 2>
                      : a.key_dim <= 128 ? scan_kernel<kDelta, kTaps, 4>
                                         : scan_kernel<kDelta, kTaps, 8>;
  const dim3 grid(a.n_heads, (a.value_dim + kScanColumns - 1) / kScanColumns);
  return launch("scan of a recurrent layer", kernel, grid, dim3(kScanThreads), 0, stream_of(cx), true, a);
}

template <bool kDelta>
Status scan(OpContext& cx, const RecurrentArgs& a) {
  return a.conv.n_taps == 4 ? scan<kDelta, 4>(cx, a) : scan<kDelta, 0>(cx, a);
}

constexpr uint32_t kThreads = 256;

// blockIdx.y is the part of the tokens.
template <uint32_t kTaps>
__global__ void short_conv_kernel(const ShortConvArgs a) {
  start_next();
  wait_for_previous();
  const uint32_t channel = blockIdx.x * kThreads + threadIdx.x;
  if (channel < a.conv.n_channels) short_conv_channel<kTaps>(a, channel, blockIdx.y);
}

// blockIdx.x is the token, blockIdx.y the head.
__global__ void head_gate_kernel(const HeadGateArgs a) {
  start_next();
  wait_for_previous();
  const size_t head = size_t{blockIdx.x} * a.n_heads + blockIdx.y;
  const float* q = a.qg + head * 2 * a.head_dim;
  float* y = a.y + head * a.head_dim;
  for (uint32_t i = threadIdx.x; i < a.head_dim; i += blockDim.x)
    y[i] = a.apply ? y[i] * sigmoid(q[a.head_dim + i]) : q[i];
}

}  // namespace

Status delta_net(OpContext& cx, const DeltaNetArgs& op) {
  WEIR_TRY(check_sizes("delta_net", op.key_dim, op.value_dim, op.conv.n_taps));
  const RecurrentArgs a = recurrent_args(op);
  if (a.n_tok == 1) return step<true>(cx, a);
  WEIR_TRY(scan<true>(cx, a));
  const size_t n_heads = size_t{a.n_tok} * a.n_heads;
  return launch("norm of delta_net", finish_delta_kernel,
                dim3(static_cast<uint32_t>((n_heads + kFinishWarps - 1) / kFinishWarps)), dim3(kFinishThreads), 0,
                stream_of(cx), true, a);
}

Status mamba2(OpContext& cx, const Mamba2Args& op) {
  WEIR_TRY(check_sizes("mamba2", op.key_dim, op.value_dim, op.conv.n_taps));
  const RecurrentArgs a = recurrent_args(op);
  WEIR_TRY(a.n_tok == 1 ? step<false>(cx, a) : scan<false>(cx, a));
  return launch("norm of mamba2", finish_mamba_kernel, dim3(a.n_tok, a.n_key_heads), dim3(kFinishThreads), 0,
                stream_of(cx), true, a);
}

Status short_conv(OpContext& cx, const ShortConvArgs& a) {
  const auto kernel = a.conv.n_taps == 3   ? short_conv_kernel<3>
                      : a.conv.n_taps == 4 ? short_conv_kernel<4>
                                           : short_conv_kernel<0>;
  const dim3 grid((a.conv.n_channels + kThreads - 1) / kThreads, (a.n_tok + kShortConvTokens - 1) / kShortConvTokens);
  return launch("short_conv", kernel, grid, dim3(kThreads), 0, stream_of(cx), !a.state.forked, a);
}

Status head_gate(OpContext& cx, const HeadGateArgs& a) {
  return launch("head_gate", head_gate_kernel, dim3(a.n_tok, a.n_heads), dim3(a.head_dim < 128 ? 64 : 128), 0,
                stream_of(cx), !a.forked, a);
}

}  // namespace weir::cuda
