// Computes: the n best logits, sorted; sums of parts of the vocabulary, and single logits.
// Launch: top_logits: each block lists the best of its part of the vocabulary; the last block to finish selects the
// best of all lists, sorts them and writes them to host memory. read_logits: a block for each of kLogitParts, which
// writes to host memory; a few tokens' logits are read by all of them.
// Assumes: launched when the step is over, without overlap.
// Numerics: the best: exact. Of equal logits the lowest ids are taken and come first; both zeros are equal; NaN counts
// as -inf. This is the sampler's own order. Sums: f32, each part's in an order that never changes.
// Traffic: the logits once, sums twice; of a part, those beyond kTopSharedRows a few times from L2.
#include <algorithm>

#include "cuda/step/top_logits.cuh"
#include "cuda/step/top_logits_parts.cuh"
#include "device/kernels/logits.h"

namespace weir::cuda {
namespace {

constexpr uint32_t kBlock = 1024;
constexpr uint32_t kMaxParts = 64;  // enough blocks to read the logits of a large vocabulary at once
constexpr uint32_t kMinParts = 16;  // parts of 128k logits are then not much larger than kTopSharedRows
constexpr uint32_t kMaxCandidates = kMaxTopLogits * kMinParts;  // of all parts
static_assert(kMaxCandidates >= kTopSharedRows);

// Each block has part_rows rows; the last block may have fewer, but has at least one.
__global__ void __launch_bounds__(kBlock) top_logits_kernel(const TopLogitsArgs a, uint32_t part_rows) {
  __shared__ TopLogitsScratch shared;
  auto* candidates = reinterpret_cast<uint2*>(a.scratch);
  const uint32_t first = blockIdx.x * part_rows, n_rows = min(part_rows, a.vocab_size - first);
  // All parts but the last list the same number, so the candidates are contiguous and their ids ascend.
  const uint32_t each = min(a.n, part_rows);
  list_part(a.logits, a.mask, first, n_rows, each, candidates + size_t{blockIdx.x} * each, shared);
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) shared.is_last = atomicAdd(a.counter, 1u) + 1 == gridDim.x;
  __syncthreads();
  if (!shared.is_last) return;
  __threadfence();
  if (threadIdx.x == 0) *a.counter = 0;
  const uint32_t last_rows = a.vocab_size - (gridDim.x - 1) * part_rows;
  merge_lists(candidates, (gridDim.x - 1) * each + min(a.n, last_rows), a.n, a.mask == nullptr, a.ids, a.values,
              shared);
}

__global__ void __launch_bounds__(kBlock) read_logits_kernel(const ReadLogitsArgs a, uint32_t part_rows) {
  __shared__ float warps[2 * kMaxBlockWarps];
  for (uint32_t i = blockIdx.x * kBlock + threadIdx.x; i < a.n_tokens; i += gridDim.x * kBlock)
    a.values[i] = a.logits[a.tokens[i]];
  if (a.parts == nullptr) return;
  const uint32_t first = min(blockIdx.x * part_rows, a.vocab_size);
  LogitPart part;
  if (sum_part(a.logits + first, min(part_rows, a.vocab_size - first), warps, part)) a.parts[blockIdx.x] = part;
}

}  // namespace

uint64_t top_logits_scratch_bytes() { return uint64_t{kMaxCandidates} * sizeof(uint2); }

Status top_logits(OpContext& cx, const TopLogitsArgs& a) {
  // Few enough candidates for the last block's shared memory, unless the parts would become large.
  const uint32_t n_parts = std::clamp(kTopSharedRows / a.n, kMinParts, kMaxParts);
  const uint32_t part_rows = (a.vocab_size + n_parts - 1) / n_parts;
  const uint32_t grid = (a.vocab_size + part_rows - 1) / part_rows;
  return launch("top_logits", top_logits_kernel, grid, kBlock, 0, stream_of(cx), false, a, part_rows);
}

Status read_logits(OpContext& cx, const ReadLogitsArgs& a) {
  const uint32_t grid = a.parts != nullptr ? kLogitParts : 1;
  return launch("read_logits", read_logits_kernel, grid, kBlock, 0, stream_of(cx), false, a,
                logit_part_rows(a.vocab_size));
}

}  // namespace weir::cuda
