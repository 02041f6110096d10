// Computes: page_accumulate.
// Launch: one block per KV head.
// Numerics: as the reference, bit for bit; kNoisy within 1e-6 of it.
// Traffic: the weights once; with kLatestLayer once for every KV head.
// Papers: as lib/ops/page_accumulate_ref.cpp.
#include "cuda/pages/page_accumulate.cuh"

#include "cuda/ops.h"
#include "ops/page_accumulate.h"

namespace weir::cuda {
namespace {

constexpr uint32_t kBlock = 256;

template <AccumulateRule kRule>
__global__ void __launch_bounds__(kBlock) page_accumulate_kernel(const PageAccumulateArgs a) {
  start_next();
  wait_for_previous();
  accumulate_stream<kRule>(a, blockIdx.x);
}

using Kernel = void (*)(PageAccumulateArgs);

Kernel kernel_of(AccumulateRule rule) {
  switch (rule) {
    case AccumulateRule::kSum:
      return page_accumulate_kernel<AccumulateRule::kSum>;
    case AccumulateRule::kLatestGroup:
      return page_accumulate_kernel<AccumulateRule::kLatestGroup>;
    case AccumulateRule::kLatestLayer:
      return page_accumulate_kernel<AccumulateRule::kLatestLayer>;
    case AccumulateRule::kNoisy:
      return page_accumulate_kernel<AccumulateRule::kNoisy>;
    case AccumulateRule::kHits:
      return page_accumulate_kernel<AccumulateRule::kHits>;
  }
  return nullptr;
}

}  // namespace

Status page_accumulate(OpContext& cx, const PageAccumulateArgs& a) {
  return launch("page_accumulate", kernel_of(a.rule), a.n_kv_heads, kBlock, 0, stream_of(cx), true, a);
}

}  // namespace weir::cuda
