// The CUDA backend's functions: the ops of the table, and the fused kernels that a decode step consists of. Pointers in
// the arguments of ops are device memory, the stream is OpContext::stream, and no op waits for the device.
#pragma once

#include "device/kernels.h"
#include "ops/table.h"

namespace weir::cuda {

using device::PageSoftmaxArgs;
using device::StepBeginArgs;

#define WEIR_OP(name, Args) Status name(OpContext& cx, const Args& a);
#include "ops/ops.inc"
#undef WEIR_OP

// Bytes of OpContext::scratch (device memory) that these ops need for sessions of these shapes.
uint64_t matmul_scratch_bytes(const OpShapes& shapes);  // matmul.cu
uint64_t attn_scratch_bytes(const OpShapes& shapes);    // attn_paged.cu
uint64_t page_select_scratch_bytes(const OpShapes& shapes);
uint64_t experts_scratch_bytes(const OpShapes& shapes);  // experts.cu

Status step_begin(OpContext& cx, const StepBeginArgs& a);
constexpr uint32_t resident_words(uint32_t n_rows) { return (n_rows + 31) / 32; }

Status page_softmax(OpContext& cx, const PageSoftmaxArgs& a);

}  // namespace weir::cuda
