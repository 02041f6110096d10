// Computes: the n best logits, sorted. Launch: each block lists the best of its part of the vocabulary; the last one to finish takes the best of all
// lists, sorts them and writes them to the host's memory. Assumes: launched when the step is over, without overlap. Numerics: exact; of equal logits
// the lowest ids are taken and come first, zeros of both signs are equal, and what is not a number counts as -inf: the sampler's own order. Traffic:
// the logits once, those beyond kSharedRows of a part a few times from the second-level cache.
#include <algorithm>

#include "cuda/common/base.cuh"
#include "cuda/common/top_k.cuh"
#include "cuda/step/top_logits.cuh"
#include "kv/step_state.h"

namespace weir::cuda {
namespace {

constexpr uint32_t kBlock = 1024;
constexpr uint32_t kDigitBits = 11;     // as page_select: logits share their upper bits
constexpr uint32_t kSharedRows = 6144;  // keys kept in shared memory: what the rest leaves of 48 KiB
constexpr uint32_t kMostParts = 64;     // enough blocks to read the logits of large vocabularies at once
constexpr uint32_t kLeastParts = 16;    // the parts of 128k logits are not much above kSharedRows then
constexpr uint32_t kMostCandidates = kMostTopLogits * kLeastParts;  // of all parts
static_assert(kMostCandidates >= kSharedRows);

struct Scratch {
  TopKeysScratch<kDigitBits> top;
  unsigned long long sorted[kMostTopLogits];
  uint32_t keys[kSharedRows];
  bool is_last;
};
static_assert(sizeof(Scratch) <= 48 << 10);

// Calls put(row, place, key) for the n best of the rows, all of them when there are no more; place counts them in ascending order of rows.
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

// Bitonic, descending. `size` is a power of two.
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

// The best of all candidates, sorted, to the host.
__device__ void merge_parts(const TopLogitsArgs& a, const uint2* candidates, uint32_t n_candidates, Scratch& s) {
  uint32_t size = 1;
  while (size < a.n) size *= 2;
  for (uint32_t i = a.n + threadIdx.x; i < size; i += kBlock) s.sorted[i] = 0;  // below every key
  // Other blocks wrote them: not from this multiprocessor's first-level cache.
  const auto key_of = [&](uint32_t i) { return __ldcg(&candidates[i]).x; };
  // The key of a logit, then the lower id.
  list_best(n_candidates, a.n, key_of, s, [&](uint32_t i, uint32_t place, uint32_t key) {
    s.sorted[place] = static_cast<unsigned long long>(key) << 32 | (0xFFFFFFFFu - __ldcg(&candidates[i]).y);
  });
  sort_keys(s.sorted, size);
  for (uint32_t i = threadIdx.x; i < a.n; i += kBlock) {
    a.ids[i] = static_cast<int32_t>(0xFFFFFFFFu - static_cast<uint32_t>(s.sorted[i]));
    a.values[i] = score_of_key(static_cast<uint32_t>(s.sorted[i] >> 32));
  }
}

// Rows of part_rows for each block; the last one may have fewer, none has no rows.
__global__ void __launch_bounds__(kBlock) top_logits_kernel(const TopLogitsArgs a, uint32_t part_rows) {
  __shared__ Scratch shared;
  auto* candidates = reinterpret_cast<uint2*>(a.scratch);
  const uint32_t first = blockIdx.x * part_rows, n_rows = min(part_rows, a.vocab_size - first);
  // Parts but the last list the same number: the candidates lie without gaps, ids ascending.
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
  // As few candidates as the last block can keep in shared memory, if the parts do not become large by it.
  const uint32_t n_parts = std::clamp(kSharedRows / a.n, kLeastParts, kMostParts);
  const uint32_t part_rows = (a.vocab_size + n_parts - 1) / n_parts;
  const uint32_t grid = (a.vocab_size + part_rows - 1) / part_rows;
  return launch("top_logits", top_logits_kernel, grid, kBlock, 0, stream_of(cx), false, a, part_rows);
}

}  // namespace weir::cuda
