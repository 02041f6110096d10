// Computes: the n best logits, sorted.
// Launch: each block lists the best of its part of the vocabulary; the last block to finish selects the best of all
// lists, sorts them and writes them to host memory.
// Assumes: launched when the step is over, without overlap.
// Numerics: exact. Of equal logits the lowest ids are taken and come first; both zeros are equal; NaN counts as -inf.
// This is the sampler's own order.
// Traffic: the logits once; of a part, those beyond kSharedRows a few times from L2.
#include <algorithm>

#include "cuda/common/base.cuh"
#include "cuda/common/top_k.cuh"
#include "cuda/step/top_logits.cuh"
#include "kv/step_state.h"

namespace weir::cuda {
namespace {

constexpr uint32_t kBlock = 1024;
constexpr uint32_t kDigitBits = 11;     // as in page_select: logits share their upper bits
constexpr uint32_t kSharedRows = 6144;  // keys kept in shared memory: what the other arrays leave of 48 KiB
constexpr uint32_t kMostParts = 64;     // enough blocks to read the logits of a large vocabulary at once
constexpr uint32_t kLeastParts = 16;    // parts of 128k logits are then not much larger than kSharedRows
constexpr uint32_t kMostCandidates = kMostTopLogits * kLeastParts;  // of all parts
static_assert(kMostCandidates >= kSharedRows);

struct Scratch {
  TopKeysScratch<kDigitBits> top;
  unsigned long long sorted[kMostTopLogits];
  uint32_t keys[kSharedRows];
  bool is_last;
};
static_assert(sizeof(Scratch) <= 48 << 10);

// Calls put(row, place, key) for the n best rows, or all rows if there are no more; `place` is the index in the list,
// ascending by row.
template <class KeyOf, class Put>
__device__ inline void list_best(uint32_t n_rows, uint32_t n, const KeyOf& key_of, Scratch& s, const Put& put) {
  for (uint32_t row = threadIdx.x; row < min(n_rows, kSharedRows); row += kBlock) s.keys[row] = key_of(row);
  __syncthreads();
  const auto kept_key = [&](uint32_t row) { return row < kSharedRows ? s.keys[row] : key_of(row); };
  const Threshold threshold = n < n_rows ? find_threshold(n_rows, n, kept_key, s.top) : Threshold{kKeyNever, 0};
  take_rows(n_rows, threshold, kept_key, s.top.warps,
            [&](uint32_t row, uint32_t place) { put(row, place, kept_key(row)); });
  __syncthreads();
}

// Bitonic sort, descending. `size` is a power of two.
__device__ inline void sort_keys(unsigned long long* keys, uint32_t size) {
  for (uint32_t run = 2; run <= size; run *= 2) {
    for (uint32_t step = run / 2; step > 0; step /= 2) {
      for (uint32_t pair = threadIdx.x; pair < size / 2; pair += kBlock) {
        const uint32_t low = 2 * pair - (pair & (step - 1)), high = low + step;
        const unsigned long long first = keys[low], second = keys[high];
        if ((first < second) == ((low & run) == 0)) keys[low] = second, keys[high] = first;
      }
      __syncthreads();
    }
  }
}

// Selects the best of all candidates, sorts them and writes them to the host.
__device__ void merge_parts(const TopLogitsArgs& a, const uint2* candidates, uint32_t n_candidates, Scratch& s) {
  uint32_t size = 1;
  while (size < a.n) size *= 2;
  for (uint32_t i = a.n + threadIdx.x; i < size; i += kBlock) s.sorted[i] = 0;  // smaller than every key
  // Other blocks wrote the candidates: read them from L2, not from this SM's L1.
  const auto key_of = [&](uint32_t i) { return __ldcg(&candidates[i]).x; };
  // Sorted by the key of the logit, then by the lower id.
  list_best(n_candidates, a.n, key_of, s, [&](uint32_t i, uint32_t place, uint32_t key) {
    s.sorted[place] = static_cast<unsigned long long>(key) << 32 | (0xFFFFFFFFu - __ldcg(&candidates[i]).y);
  });
  sort_keys(s.sorted, size);
  for (uint32_t i = threadIdx.x; i < a.n; i += kBlock) {
    a.ids[i] = static_cast<int32_t>(0xFFFFFFFFu - static_cast<uint32_t>(s.sorted[i]));
    a.values[i] = score_of_key(static_cast<uint32_t>(s.sorted[i] >> 32));
  }
}

// Each block has part_rows rows; the last block may have fewer, but has at least one.
__global__ void __launch_bounds__(kBlock) top_logits_kernel(const TopLogitsArgs a, uint32_t part_rows) {
  __shared__ Scratch shared;
  auto* candidates = reinterpret_cast<uint2*>(a.scratch);
  const uint32_t first = blockIdx.x * part_rows, n_rows = min(part_rows, a.vocab_size - first);
  // All parts but the last list the same number, so the candidates are contiguous and their ids ascend.
  const uint32_t each = min(a.n, part_rows);
  uint2* mine = candidates + size_t{blockIdx.x} * each;
  list_best(
      n_rows, a.n, [&](uint32_t row) { return key_of_score(a.logits[first + row]); }, shared,
      [&](uint32_t row, uint32_t place, uint32_t key) { mine[place] = make_uint2(key, first + row); });
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) shared.is_last = atomicAdd(a.counter, 1u) + 1 == gridDim.x;
  __syncthreads();
  if (!shared.is_last) return;
  __threadfence();
  if (threadIdx.x == 0) *a.counter = 0;
  const uint32_t last_rows = a.vocab_size - (gridDim.x - 1) * part_rows;
  merge_parts(a, candidates, (gridDim.x - 1) * each + min(a.n, last_rows), shared);
}

}  // namespace

uint64_t top_logits_scratch_bytes() { return uint64_t{kMostCandidates} * sizeof(uint2); }

Status top_logits(OpContext& cx, const TopLogitsArgs& a) {
  // Few enough candidates for the last block's shared memory, unless the parts would become large.
  const uint32_t n_parts = std::clamp(kSharedRows / a.n, kLeastParts, kMostParts);
  const uint32_t part_rows = (a.vocab_size + n_parts - 1) / n_parts;
  const uint32_t grid = (a.vocab_size + part_rows - 1) / part_rows;
  return launch("top_logits", top_logits_kernel, grid, kBlock, 0, stream_of(cx), false, a, part_rows);
}

}  // namespace weir::cuda
