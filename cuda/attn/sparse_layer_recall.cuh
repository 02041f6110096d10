// Recall in sparse_layer.cu: between selection and attention every block of the cluster finds, by itself and with the
// same result, which pages come back and which leave; a warp that attends a page which comes back copies it from host
// memory into the pool before. The first block brings the tables up to date meanwhile.
// What the exchange needs of the tables is read before the previous kernel has ended, so that after selection nothing
// is read from memory but the pages.
// The bytes of different pages are on their way at the same time, and while other warps attend pages that are there. A
// page is attended by the same warp whether it comes back or not, so that no bit depends on what was in the pool.
#pragma once

#include "cuda/attn/sparse_layer_work.cuh"

namespace weir::cuda::sparse {

static_assert(kMaxRows / kWarp <= kThreads, "a thread lists the rows of a word of bits");

// A few pages that come back are found one after the other, by a warp; more, by comparing all pairs.
inline constexpr uint32_t kFewBack = 12;

inline constexpr uint32_t kMaxExchanged = kThreads;  // slots of a stream: each is a thread's candidate to leave

// What a block keeps in the memory of Shared::values until it attends pages.
struct RecallScratch {
  size_t is_wanted, wanted, leaving, bytes;  // offsets; first come bits of the rows whose pages are in the pool
  __host__ __device__ RecallScratch(uint32_t n_rows, const PageRecallArgs& a) {
    is_wanted = (size_t{resident_words(n_rows)} * sizeof(uint32_t) + 15) / 16 * 16;
    wanted = 2 * is_wanted;
    leaving = wanted + max_wanted(a.rules, a.n_slots) * sizeof(Candidate);
    bytes = leaving + size_t{a.n_slots} * sizeof(Candidate);
  }
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

template <uint32_t kDim>
struct Recall {
  uint32_t *resident, *is_wanted;  // a bit for each row
  Candidate* wanted;               // [max_wanted] those that are cold and have a copy
  Candidate* leaving;              // [n_slots] pages in the pool that may leave unless they are wanted

  __device__ explicit Recall(const Work<kDim>& w) {
    const PageRecallArgs& a = w.k.recall;
    const RecallScratch at(w.k.attn.kv.capacity, a);
    auto* memory = reinterpret_cast<std::byte*>(w.s.values);
    resident = reinterpret_cast<uint32_t*>(memory);
    is_wanted = reinterpret_cast<uint32_t*>(memory + at.is_wanted);
    wanted = reinterpret_cast<Candidate*>(memory + at.wanted);
    leaving = reinterpret_cast<Candidate*>(memory + at.leaving);
  }
};

// A page of the pool in a thread's registers, while its reads are on their way.
struct PoolPage {
  uint32_t row, flags, stamp;
};

// Calls take(row, place) for the rows with a bit set, of which a thread has 32: place counts them in ascending order,
// n_all is their number. The block synchronises before and after.
template <uint32_t kDim, class Take>
__device__ void list_rows(const Work<kDim>& w, uint32_t bits, uint32_t& n_all, const Take& take) {
  const uint32_t lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  uint32_t of_warp;
  uint32_t place = warp_sum_before(__popc(bits), of_warp);
  if (lane == 0) w.s.top.warps[0][warp] = of_warp;
  __syncthreads();
  const uint32_t other = lane < kWarps ? w.s.top.warps[0][lane] : 0u;
  place += sum_of_lanes(lane < warp ? other : 0u);
  n_all = sum_of_lanes(other);
  for (; bits != 0; bits &= bits - 1) take(threadIdx.x * 32 + __ffs(static_cast<int>(bits)) - 1, place++);
}

// Begins to read what the exchange needs of the tables; see sparse_layer() for when that was written. Returns what it
// says of candidate threadIdx.x to leave.
template <uint32_t kDim>
__device__ PoolPage begin_recall(const Work<kDim>& w) {
  const PageRecallArgs& a = w.k.recall;
  const Recall<kDim> r(w);
  const uint32_t stream = a.layer * a.tables.n_kv_heads + w.kv_head, n_words = resident_words(w.n);
  const uint32_t* resident = a.resident + size_t{stream} * resident_words(a.max_capacity);
  const uint32_t bits = threadIdx.x < n_words ? resident[threadIdx.x] : 0;
  if (threadIdx.x < n_words) {
    r.resident[threadIdx.x] = bits;
    r.is_wanted[threadIdx.x] = 0;
  }
  if (threadIdx.x == 0) {
    w.recall->stream = stream_at(a, stream);
    w.recall->counts = {};
  }
  // Another stream can make the step late while the blocks begin, so only one of them looks.
  if (threadIdx.x == 0 && w.rank == 0) {
    const bool is_late = *static_cast<volatile uint32_t*>(&a.state->is_late) != 0;
    const bool repeats = a.heads[stream].now == w.pos + 1;
    w.recall->turn = a.only_lists || is_late ? RecallTurn::kNothing
                     : repeats               ? RecallTurn::kStamps
                                             : RecallTurn::kExchange;
  }
  // One thread for each page, so that all reads are on their way at once.
  uint32_t n;
  list_rows(w, bits, n, [&](uint32_t row, uint32_t place) { r.leaving[place].row = row; });
  if (threadIdx.x == 0) w.recall->counts.n_leaving = n;
  __syncthreads();
  PoolPage page = {kNoRow, 0, 0};
  if (threadIdx.x < n) {
    const size_t row = r.leaving[threadIdx.x].row, at = w.recall->stream.first + row;
    page = {static_cast<uint32_t>(row), a.tables.flags[at], a.tables.stamp[at]};
  }
  return page;
}

// Keeps the candidate to leave for later, when its reads have ended.
template <uint32_t kDim>
__device__ void keep_candidate(const Work<kDim>& w, const PoolPage& page) {
  if (page.row == kNoRow) return;
  const uint32_t end = w.n - min(w.n, 1 + w.k.recall.rules.protect.pages);
  const bool may_leave = page.row < end && !stays_there(w.k.recall.rules, page.row, page.flags);
  Recall<kDim>(w).leaving[threadIdx.x] = {page.stamp, may_leave ? page.row : kNoRow, 0};
}

// Tells all blocks what the first one found. Executed by that one, before a barrier of the cluster.
template <uint32_t kDim>
__device__ void push_turn(const Work<kDim>& w) {
  const RecallTurn turn = w.recall->turn;
  if (threadIdx.x != 0 && threadIdx.x < w.n_blocks) *shared_of(&w.recall->turn, threadIdx.x) = turn;
}

// Marks a selected row, and collects it if it is cold and has a copy.
template <uint32_t kDim>
__device__ void collect_selected(const Work<kDim>& w, const Recall<kDim>& r, uint32_t row) {
  const DeviceStream& s = w.recall->stream;
  atomicOr(&r.is_wanted[row / 32], 1u << row % 32);
  const RecallTurn turn = w.recall->turn;
  if (turn == RecallTurn::kNothing) return;
  if (w.rank == 0 && w.k.recall.rules.stamps_wanted) s.stamp[row] = w.pos + 1;
  const uint32_t page = w.pages[row], copy = page & (kAbsent - 1);
  if (turn != RecallTurn::kExchange || (page & kAbsent) == 0 || copy == (kNoCopy & (kAbsent - 1))) return;
  // What stays comes back first, then the pages with the best score.
  const uint32_t key = w.keys[row];
  const bool stays = key == kKeyAlways;
  r.wanted[atomicAdd(&w.recall->counts.n_wanted, 1u)] = {
      stays ? uint64_t{~key_of_score(s.last_score[row])} : uint64_t{1} << 32 | ~key, row,
      copy == (kCopyElsewhere & (kAbsent - 1)) ? kCopyElsewhere : copy};
}

// Decides what comes back over what: w.back [counts.n_back]. The block has synchronised after collect_selected.
template <uint32_t kDim>
__device__ void choose_back(const Work<kDim>& w, const Recall<kDim>& r) {
  RecallCounts& counts = w.recall->counts;
  const DeviceStream& s = w.recall->stream;
  const uint32_t n_wanted = counts.n_wanted, n_listed = counts.n_leaving;
  bool can_leave = false;
  if (threadIdx.x < n_listed) {
    Candidate& c = r.leaving[threadIdx.x];
    can_leave = c.row != kNoRow && (r.is_wanted[c.row / 32] >> c.row % 32 & 1u) == 0;
    c.key = can_leave ? c.key << 32 | w.keys[c.row] : ~uint64_t{0};
    if (!can_leave) c.row = kNoRow;
  }
  const auto n_can_leave = static_cast<uint32_t>(__syncthreads_count(can_leave ? 1 : 0));
  const uint32_t n_free = free_slots_of(s), n_back = min(min(n_wanted, w.k.recall.host.most), n_free + n_can_leave);
  const auto come_back = [&](uint32_t at, const Candidate& c) {
    w.back[at].row = c.row;
    w.back[at].copy = c.copy;
    if (at >= n_free) return;
    w.back[at].slot = w.k.recall.tables.free_slots[s.free_end - 1 - (s.n_resident + at)];
    w.back[at].left = kNoRow;
  };
  const auto leave = [&](uint32_t at, const Candidate& c) {
    w.back[at].slot = w.pages[c.row] & (kAbsent - 1);
    w.back[at].left = c.row;
  };
  constexpr uint32_t kHalf = kThreads / 2;
  const uint32_t lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, n_out = n_back - min(n_back, n_free);
  if (n_back <= kFewBack) {
    if (warp == 0) {
      front_least(r.wanted, n_wanted, n_back);
      if (lane < n_back) come_back(lane, r.wanted[lane]);
    } else if (warp == 1) {
      front_least(r.leaving, n_listed, n_out);
      if (lane < n_out) leave(n_free + lane, r.leaving[lane]);
    }
  } else if (threadIdx.x < kHalf) {
    for (uint32_t i = threadIdx.x; i < n_wanted; i += kHalf) {
      const Candidate c = r.wanted[i];
      const uint32_t at = rank_of(c, r.wanted, n_wanted);
      if (at < n_back) come_back(at, c);
    }
  } else {
    for (uint32_t i = threadIdx.x - kHalf; i < n_listed; i += kHalf) {
      const Candidate c = r.leaving[i];
      const uint32_t at = c.row == kNoRow ? n_out : rank_of(c, r.leaving, n_listed);
      if (at < n_out) leave(n_free + at, c);
    }
  }
  if (threadIdx.x == 0) counts.n_back = n_back;
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < n_back; i += kThreads) {
    const RecallEntry entry = w.back[i];
    w.pages[entry.row] = i | kAbsent | (kPageTokens - 1) << kLengthShift;  // only whole pages are cold
    atomicOr(&r.resident[entry.row / 32], 1u << entry.row % 32);
    if (entry.left != kNoRow) atomicAnd(&r.resident[entry.left / 32], ~(1u << entry.left % 32));
  }
  __syncthreads();
}

// Brings back what is selected and cold, and lists this block's part of the pages to attend. Returns the length of that
// part; n_all becomes that of all parts.
template <uint32_t kDim>
__device__ uint32_t list_with_recall(const Work<kDim>& w, const Threshold& threshold, uint32_t& n_all) {
  const Recall<kDim> r(w);
  take_shared_rows(w.keys, w.n, threshold, w.s.top, [&](uint32_t row, uint32_t) { collect_selected(w, r, row); });
  __syncthreads();
  if (w.recall->counts.n_wanted != 0) choose_back(w, r);
  uint32_t bits = threadIdx.x < resident_words(w.n) ? r.resident[threadIdx.x] : 0;
  if (w.k.recall.rules.attend_wanted && bits != 0) bits &= r.is_wanted[threadIdx.x];
  const auto each = [&] { return (n_all + w.n_blocks - 1) / w.n_blocks; };
  list_rows(w, bits, n_all, [&](uint32_t row, uint32_t place) {
    const uint32_t begin = w.rank * each();
    if (begin <= place && place < begin + each()) w.list[place - begin] = w.pages[row];
  });
  return min(n_all, (w.rank + 1) * each()) - min(n_all, w.rank * each());
}

// The exchange in the tables, by one warp of the first block.
template <uint32_t kDim>
__device__ void note_recall(const Work<kDim>& w) {
  RecallCounts& counts = w.recall->counts;
  if (w.recall->turn != RecallTurn::kExchange) return;
  if (counts.n_back != 0) note_exchange(w.k.recall, w.recall->stream, w.pos + 1, w.back, counts);
  if (threadIdx.x % kWarp == 0) w.k.recall.heads[w.recall->stream.index] = {w.pos + 1, counts.n_back};
}

// Copies page `at` of those that come back, number i of the list, into the pool, and puts its slot into the list.
// `bytes`: null if they did not come. Executed by a warp.
template <uint32_t kDim, KvFormat kFormat>
__device__ void bring_page(const Work<kDim>& w, uint32_t i, const RecallEntry& entry, const std::byte* bytes) {
  constexpr uint32_t kBytes = kv_page_bytes(kFormat, kDim), kVectors = kBytes / sizeof(uint4),
                     kTogether = (kVectors + kWarp - 1) / kWarp;
  const uint32_t lane = threadIdx.x % kWarp;
  if (bytes != nullptr) {
    copy_page<kTogether>(bytes, w.k.recall.pool + size_t{entry.slot} * page_units<kFormat>(kDim), kBytes, lane, kWarp);
    __threadfence_block();  // other lanes read it
  }
  __syncwarp();
  if (lane == 0) w.list[i] = entry.slot | (kPageTokens - 1) << kLengthShift;
  __syncwarp();
}

// The warp's pages that come back: those whose copies are raw, then, if there are any, those that the host sends.
template <uint32_t kDim, KvFormat kFormat>
__device__ void bring_pages(const Work<kDim>& w, uint32_t n_pages) {
  const PageRecallArgs& a = w.k.recall;
  const auto for_each_back = [&](const auto& f) {
    for (uint32_t i = threadIdx.x / kWarp; i < n_pages; i += kWarps) {
      if ((w.list[i] & kAbsent) != 0) f(i, w.list[i] & (kAbsent - 1));
    }
  };
  bool waits = false;
  for_each_back([&](uint32_t i, uint32_t at) {
    const RecallEntry entry = w.back[at];
    if (entry.copy == kCopyElsewhere) {
      waits = true;
    } else {
      bring_page<kDim, kFormat>(w, i, entry, a.host.raw_pages + size_t{entry.copy} * a.page_bytes);
    }
  });
  if (!waits) return;
  const bool came =
      __shfl_sync(kAllLanes, threadIdx.x % kWarp == 0 ? wait_for_host(a, w.kv_head, w.pos + 1) : false, 0);
  __syncwarp();
  for_each_back([&](uint32_t i, uint32_t at) {
    bring_page<kDim, kFormat>(w, i, w.back[at], came ? sent_page(a, w.kv_head, at) : nullptr);
  });
}

#endif

}  // namespace weir::cuda::sparse
