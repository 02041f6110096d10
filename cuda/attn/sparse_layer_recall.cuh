// Recall in sparse_layer.cu: between selection and attention the cluster's first block exchanges pages and tells the
// other blocks; a warp that attends a page which comes back copies it from host memory into the pool before.
// The bytes of different pages are on their way at the same time, and while other warps attend pages that are there. A
// page is attended by the same warp whether it comes back or not, so that no bit depends on what was in the pool.
#pragma once

#include "cuda/attn/sparse_layer_scores.cuh"
#include "cuda/pages/page_exchange.cuh"

namespace weir::cuda::sparse {

static_assert(kThreads == kExchangeThreads);

// What a block keeps in the memory of Shared::values until it attends pages. Only the first block uses more than
// is_wanted.
struct RecallScratch {
  size_t resident, is_wanted, candidates, bytes;  // offsets
  __host__ __device__ RecallScratch(uint32_t n_rows, const PageRecallArgs& a);
};

#ifdef __CUDACC__

struct RecallStart {
  DeviceStream stream;
  RecallCounts counts;
  uint32_t exchanges, repeats;
};

__host__ __device__ inline RecallScratch::RecallScratch(uint32_t n_rows, const PageRecallArgs& a) {
  const size_t words = (size_t{resident_words(n_rows)} * sizeof(uint32_t) + 15) / 16 * 16;
  resident = (sizeof(RecallStart) + 15) / 16 * 16;
  is_wanted = resident + words;
  candidates = is_wanted + words;
  bytes = candidates + (size_t{most_wanted(a)} + a.n_slots + 2 * size_t{a.host.most}) * sizeof(Candidate);
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

template <uint32_t kDim>
struct Recall {
  RecallStart* start;
  uint32_t* resident;
  RecallLists lists;

  __device__ explicit Recall(const Work<kDim>& w) {
    const PageRecallArgs& a = w.k.recall;
    const RecallScratch at(w.k.attn.kv.capacity, a);
    auto* memory = reinterpret_cast<std::byte*>(w.s.values);
    start = reinterpret_cast<RecallStart*>(memory);
    resident = reinterpret_cast<uint32_t*>(memory + at.resident);
    lists.is_wanted = reinterpret_cast<uint32_t*>(memory + at.is_wanted);
    lists.wanted = reinterpret_cast<Candidate*>(memory + at.candidates);
    lists.leaving = lists.wanted + most_wanted(a);
    lists.back = lists.leaving + a.n_slots;
    lists.out = lists.back + a.host.most;
  }
};

// Reads what the first block needs of the tables. Nothing of it changes from the end of the kernel before the previous
// one on: another stream of the layer can make the step late, but then it makes no difference what this one does.
template <uint32_t kDim>
__device__ void begin_recall(const Work<kDim>& w) {
  const PageRecallArgs& a = w.k.recall;
  const Recall<kDim> r(w);
  for (uint32_t i = threadIdx.x; i < resident_words(w.n); i += kThreads) r.lists.is_wanted[i] = 0;
  if (w.rank != 0) return;
  const uint32_t stream = a.layer * a.tables.n_kv_heads + w.kv_head;
  const uint32_t* resident = a.resident + size_t{stream} * resident_words(a.max_capacity);
  for (uint32_t i = threadIdx.x; i < resident_words(w.n); i += kThreads) r.resident[i] = resident[i];
  if (threadIdx.x != 0) return;
  const bool is_late = *static_cast<volatile uint32_t*>(&a.state->is_late) != 0;
  r.start->stream = stream_at(a, stream);
  r.start->counts = {};
  r.start->exchanges = !a.only_lists && !is_late ? 1 : 0;
  r.start->repeats = a.heads[stream].now == w.pos + 1 ? 1 : 0;
}

// The first block's part: decides what comes back and sends it to all blocks.
template <uint32_t kDim>
__device__ void push_exchange(const Work<kDim>& w, Recall<kDim>& r) {
  const PageRecallArgs& a = w.k.recall;
  RecallStart& start = *r.start;
  if (start.counts.n_wanted != 0) choose_exchange(a, start.stream, r.resident, r.lists, start.counts);
  const uint32_t n_back = start.counts.n_back;
  const auto slot_of = [&](uint32_t row) { return w.pages[row] & (kComesBack - 1); };
  for (uint32_t i = threadIdx.x; i < n_back; i += kThreads) {
    const RecallEntry entry = entry_of(a, start.stream, r.lists, i, slot_of);
    for (uint32_t to = 0; to < w.n_blocks; ++to) *shared_of(w.back + i, to) = entry;
  }
  if (threadIdx.x < w.n_blocks) *shared_of(w.n_back, threadIdx.x) = n_back;
}

// In the tables, while the other blocks go on.
template <uint32_t kDim>
__device__ void note_recall(const Work<kDim>& w, const Recall<kDim>& r) {
  RecallStart& start = *r.start;
  if (start.exchanges == 0) return;
  if (start.counts.n_back != 0) note_exchange(w.k.recall, start.stream, w.pos + 1, w.back, start.counts);
  if (threadIdx.x == 0) w.k.recall.heads[start.stream.index] = {w.pos + 1, start.counts.n_back};
}

// Brings back what is selected and cold, and lists this block's part of the pages to attend. Returns the length of that
// part; n_all becomes that of all parts.
template <uint32_t kDim>
__device__ uint32_t list_with_recall(const Work<kDim>& w, const Threshold& threshold, uint32_t& n_all) {
  const PageRecallArgs& a = w.k.recall;
  Recall<kDim> r(w);
  const bool exchanges = w.rank == 0 && r.start->exchanges != 0, repeats = exchanges && r.start->repeats != 0;
  take_shared_rows(w.keys, w.n, threshold, w.s.top, [&](uint32_t row, uint32_t) {
    if (exchanges) {
      collect_wanted(a, r.start->stream, row, w.pages[row] == kColdPage, w.pos + 1, !repeats, r.lists, r.start->counts);
    } else {
      atomicOr(&r.lists.is_wanted[row / 32], 1u << row % 32);
    }
  });
  __syncthreads();
  if (w.rank == 0) push_exchange(w, r);
  cluster_arrive();
  if (w.rank == 0) note_recall(w, r);
  cluster_wait();
  for (uint32_t i = threadIdx.x; i < *w.n_back; i += kThreads) {
    const RecallEntry entry = w.back[i];
    w.pages[entry.row] = i | kComesBack | (kPageTokens - 1) << kLengthShift;  // only whole pages are cold
    if (entry.left != kNoRow) w.pages[entry.left] = kColdPage;
  }
  __syncthreads();
  uint32_t n = 0;
  for (uint32_t row = threadIdx.x; row < w.n; row += kThreads) {
    const bool is_asked = !a.rules.attend_wanted || (r.lists.is_wanted[row / 32] >> row % 32 & 1u) != 0;
    const bool is_attended = is_asked && w.pages[row] != kColdPage;
    w.keys[row] = is_attended ? kKeyAlways : kKeyNever;
    n += is_attended ? 1u : 0u;
  }
  n_all = sum_of_warps<kThreads>(sum_of_lanes(n), w.s.top.warps[0]);
  const uint32_t each = (n_all + w.n_blocks - 1) / w.n_blocks;
  const uint32_t begin = min(n_all, w.rank * each), end = min(n_all, begin + each);
  take_shared_rows(w.keys, w.n, {kKeyAlways - 1, 0}, w.s.top, [&](uint32_t row, uint32_t place) {
    if (begin <= place && place < end) w.list[place - begin] = w.pages[row];
  });
  return end - begin;
}

// Copies page i of those that come back into the pool, by one warp. Returns its slot.
template <uint32_t kDim>
__device__ uint32_t bring_page(const Work<kDim>& w, uint32_t i) {
  const PageRecallArgs& a = w.k.recall;
  const uint32_t lane = threadIdx.x % kWarp;
  const RecallEntry entry = w.back[i];
  unsigned long long bytes = 0;
  if (lane == 0) bytes = reinterpret_cast<unsigned long long>(find_bytes(a, w.kv_head, w.pos + 1, entry, i));
  bytes = __shfl_sync(kAllLanes, bytes, 0);
  if (bytes != 0) {
    copy_page(reinterpret_cast<const std::byte*>(bytes), a.pool + size_t{entry.slot} * (2 * kPageTokens * kDim),
              2 * kPageTokens * kDim * sizeof(uint16_t), lane, kWarp);
    __threadfence();  // asynchronous copies read it, on behalf of other lanes
  }
  __syncwarp();
  return entry.slot;
}

#endif
#endif

}  // namespace weir::cuda::sparse
