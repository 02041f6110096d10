// Recall inside a kernel: which of the wanted pages come back, over which pages, what the tables say of them then, and
// their bytes. As lib/policy/rules.cpp does it on the host, ties included.
// The choice has two forms with the same result: the one here, for page_recall.cu, where one block works for a stream,
// and that of sparse_layer_recall.cuh, where every block of a cluster makes it.
#pragma once

#include "cuda/pages/leave_page.cuh"
#include "cuda/pages/page_recall.cuh"
#include "device/kernels/page_recall.h"

namespace weir::cuda {

#ifdef __CUDACC__

inline constexpr uint32_t kExchangeThreads = 512;  // of the block

// A page that can come back or leave.
struct Candidate {
  uint64_t key;  // the least comes back or leaves first
  uint32_t row, copy;
};

// Lists of a block, in shared memory.
struct RecallLists {
  Candidate* wanted;      // that are cold and have a copy; see max_wanted
  Candidate* leaving;     // [n_slots]
  Candidate *back, *out;  // those that do, in order; at first of host.most elements
  uint32_t* is_wanted;    // a bit for each row
};

struct RecallCounts {
  uint32_t n_wanted, n_leaving, n_stay, n_back, n_asked;  // n_stay of the n_leaving cannot leave, and are the last
  uint32_t n_cold, n_lost, n_prompt;
};

// Whether a step exchanges pages. A step that is late by now and one that is measured do nothing; one that is repeated
// has exchanged them.
enum class RecallTurn : uint32_t { kNothing, kStamps, kExchange };

// What a block whose kernel exchanges pages and attends them has in shared memory.
struct alignas(16) RecallWork {
  DeviceStream stream;
  RecallCounts counts;
  RecallTurn turn;
};

// Host memory changes between the steps, so nothing of it may come from a cache.
__device__ inline uint32_t read_host(const uint32_t* p) { return *static_cast<const volatile uint32_t*>(p); }
__device__ inline uint32_t acquire_host(const uint32_t* p) {
  uint32_t x;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
  return x;
}
__device__ inline uint64_t now_ns() {
  uint64_t t;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
  return t;
}

// A number for this layer of this step that no other layer and no neighbouring step has.
__device__ inline uint32_t ticket_of(uint32_t now, uint32_t n_layers, uint32_t layer) {
  const uint32_t ticket = now * n_layers + layer;
  return ticket == 0 ? ~0u : ticket;
}

__device__ inline DeviceStream stream_at(const PageRecallArgs& a, uint32_t stream) {
  DeviceStream s = stream_at(a.tables, stream);
  s.resident = a.resident + size_t{stream} * resident_words(a.max_capacity);
  return s;
}

// --- the choice ------------------------------------------------------------------------------------------------------

// Moves the n candidates with the least (key, row) to the front, in order. Executed by one warp.
__device__ inline void front_least(Candidate* list, uint32_t n_list, uint32_t n) {
  const uint32_t lane = threadIdx.x % kWarp;
  for (uint32_t done = 0; done < n; ++done) {
    uint64_t key = ~uint64_t{0};
    uint32_t row = kNoRow, at = kNoRow;
    for (uint32_t i = done + lane; i < n_list; i += kWarp) {
      const Candidate c = list[i];
      if (at == kNoRow || c.key < key || (c.key == key && c.row < row)) key = c.key, row = c.row, at = i;
    }
#pragma unroll
    for (uint32_t i = kWarp / 2; i > 0; i /= 2) {
      const uint64_t other = __shfl_xor_sync(kAllLanes, key, i);
      const uint32_t other_row = __shfl_xor_sync(kAllLanes, row, i), other_at = __shfl_xor_sync(kAllLanes, at, i);
      const bool is_less = other_at != kNoRow && (at == kNoRow || other < key || (other == key && other_row < row));
      if (is_less) key = other, row = other_row, at = other_at;
    }
    if (lane == 0) {
      const Candidate first = list[done];
      list[done] = list[at];
      list[at] = first;
    }
    __syncwarp();
  }
}

// How many of the list come before candidate c.
__device__ inline uint32_t rank_of(const Candidate& c, const Candidate* list, uint32_t n) {
  uint32_t before = 0;
#pragma unroll 8
  for (uint32_t i = 0; i < n; ++i) {
    const Candidate other = list[i];
    before += other.key < c.key || (other.key == c.key && other.row < c.row) ? 1u : 0u;
  }
  return before;
}

// The same by as many threads as there are candidates: thread i finds the place of candidate i. `sorted` [n] takes the
// first ones. The block synchronises afterwards.
__device__ inline void sort_least(const Candidate* list, uint32_t n_list, uint32_t n, Candidate* sorted, uint32_t i) {
  if (i >= n_list) return;
  const uint32_t at = rank_of(list[i], list, n_list);
  if (at < n) sorted[at] = list[i];
}

// Marks a wanted row, and collects it if it is cold and has a copy.
__device__ inline void collect_wanted(const PageRecallArgs& a, const DeviceStream& s, uint32_t row, bool is_cold,
                                      uint32_t now, bool may_come_back, const RecallLists& lists,
                                      RecallCounts& counts) {
  atomicOr(&lists.is_wanted[row / 32], 1u << row % 32);
  if (a.rules.stamps_wanted) s.stamp[row] = now;
  if (!may_come_back || !is_cold) return;
  const uint32_t copy = a.raw_index[s.first + row], flags = s.flags[row];
  const float score = s.last_score[row];
  if (copy == kNoCopy) return;
  // What stays comes back first, then the pages with the best score.
  const uint64_t key = uint64_t{stays_there(a.rules, row, flags) ? 0u : 1u} << 32 | ~key_of_score(score);
  lists.wanted[atomicAdd(&counts.n_wanted, 1u)] = {key, row, copy};
}

// Lists the pages that may leave. A thread reads the tables for each page, so that all reads are on their way at once.
__device__ inline void collect_leaving(const PageRecallArgs& a, const DeviceStream& s, const RecallLists& lists,
                                       RecallCounts& counts) {
  const uint32_t end = s.n_pages - min(s.n_pages, 1 + a.rules.protect.pages);
  for (uint32_t word = threadIdx.x; word < resident_words(end); word += kExchangeThreads) {
    for (uint32_t bits = s.resident[word] & ~lists.is_wanted[word]; bits != 0; bits &= bits - 1) {
      const uint32_t row = word * 32 + __ffs(static_cast<int>(bits)) - 1;
      if (row < end) lists.leaving[atomicAdd(&counts.n_leaving, 1u)].row = row;
    }
  }
  __syncthreads();
  uint32_t n_stay = 0;
  for (uint32_t i = threadIdx.x; i < counts.n_leaving; i += kExchangeThreads) {
    const uint32_t row = lists.leaving[i].row, flags = s.flags[row], stamp = s.stamp[row];
    const uint64_t key = uint64_t{stamp} << 32 | key_of_score(s.last_score[row]);
    const bool stays = stays_there(a.rules, row, flags);
    lists.leaving[i] = {stays ? ~uint64_t{0} : key, row, 0};
    n_stay += stays ? 1u : 0u;
  }
  if (n_stay != 0) atomicAdd(&counts.n_stay, n_stay);
}

__device__ inline uint32_t free_slots_of(const DeviceStream& s) {
  return static_cast<uint32_t>(s.free_end - s.free_begin) - s.n_resident;
}

// Decides what comes back, lists.back [counts.n_back], and what leaves for it, lists.out. The block has synchronised
// after collect_wanted.
__device__ inline void choose_exchange(const PageRecallArgs& a, const DeviceStream& s, RecallLists& lists,
                                       RecallCounts& counts) {
  collect_leaving(a, s, lists, counts);
  __syncthreads();
  const uint32_t n_wanted = counts.n_wanted, n_leaving = counts.n_leaving, n_free = free_slots_of(s);
  const uint32_t n_back = min(min(n_wanted, a.host.most), n_free + n_leaving - counts.n_stay),
                 n_out = n_back - min(n_back, n_free);
  if (threadIdx.x == 0) counts.n_back = n_back;
  constexpr uint32_t kHalf = kExchangeThreads / 2;
  if (max(n_wanted, n_leaving) <= kHalf) {
    if (threadIdx.x < kHalf) {
      sort_least(lists.wanted, n_wanted, n_back, lists.back, threadIdx.x);
    } else {
      sort_least(lists.leaving, n_leaving, n_out, lists.out, threadIdx.x - kHalf);
    }
  } else {
    if (threadIdx.x < kWarp) front_least(lists.wanted, n_wanted, n_back);
    if (threadIdx.x / kWarp == 1) front_least(lists.leaving, n_leaving, n_out);
    lists.back = lists.wanted;
    lists.out = lists.leaving;
  }
  __syncthreads();
}

// Page i of those that come back.
__device__ inline RecallEntry entry_of(const PageRecallArgs& a, const DeviceStream& s, const RecallLists& lists,
                                       uint32_t i) {
  const uint32_t n_free = free_slots_of(s);
  const Candidate back = lists.back[i];
  if (i < n_free) return {back.row, a.tables.free_slots[s.free_end - 1 - (s.n_resident + i)], back.copy, kNoRow};
  const uint32_t left = lists.out[i - n_free].row;
  return {back.row, s.slots[left], back.copy, left};
}

// --- tables and counters ---------------------------------------------------------------------------------------------

// Executed by one thread.
__device__ inline void leave_pool(const PageRecallArgs& a, const DeviceStream& s, uint32_t row, uint32_t now,
                                  RecallCounts& counts) {
  const uint32_t flags = s.flags[row];
  const bool is_lost = a.raw_index[s.first + row] == kNoCopy;
  record_event(a.state, a.events, a.tables.n_kv_heads, s, row, now - 1);
  atomicAdd(is_lost ? &counts.n_lost : &counts.n_cold, 1u);
  if ((flags & kPagePrompt) != 0) atomicAdd(&counts.n_prompt, 1u);
  if (is_lost) {
    s.flags[row] = flags & ~uint32_t{kPageKept};
    spoil_digest(a.digests + (s.first - a.tables.row_begin[a.layer * a.tables.n_kv_heads] + row) * a.digest_elements,
                 a.digest_elements, 0, 1);
  }
  s.slots[row] = kNoSlot;
  atomicAnd(&s.resident[row / 32], ~(1u << row % 32));
}

// Asks the host for the pages whose copies are not raw. Executed by a warp.
__device__ inline void ask_host(const PageRecallArgs& a, uint32_t kv_head, uint32_t now, const RecallEntry* entries,
                                uint32_t n) {
  for (uint32_t i = threadIdx.x % kWarp; i < n; i += kWarp)
    a.host.rows[size_t{kv_head} * a.host.most + i] = entries[i].copy == kCopyElsewhere ? entries[i].row : kNoAskedRow;
  __threadfence_system();
  __syncwarp();
  if (threadIdx.x % kWarp != 0) return;
  RecallPost& post = a.host.posts[kv_head];
  post.layer = a.layer;
  post.n = n;
  __threadfence_system();
  *static_cast<volatile uint32_t*>(&post.ticket) = ticket_of(now, a.tables.n_layers, a.layer);
}

// What the stream brought back, in the tables' and the step's counters. Executed by one thread.
__device__ inline void count_exchange(const PageRecallArgs& a, const DeviceStream& s, const RecallCounts& counts) {
  using Count = unsigned long long;
  const uint32_t n_out = counts.n_cold + counts.n_lost, n_back = counts.n_back;
  StepState& state = *a.state;
  a.tables.n_resident[s.index] = s.n_resident + n_back - n_out;
  atomicAdd(reinterpret_cast<Count*>(&state.pages_recalled), Count{n_back});
  atomicAdd(reinterpret_cast<Count*>(&state.pages_cold), Count{counts.n_cold} - n_back);
  if (counts.n_lost != 0) atomicAdd(reinterpret_cast<Count*>(&state.pages_lost), Count{counts.n_lost});
  if (counts.n_prompt != 0) atomicAdd(reinterpret_cast<Count*>(&state.prompt_pages_evicted), Count{counts.n_prompt});
  if (n_back != n_out) {
    const Count before = atomicAdd(reinterpret_cast<Count*>(&state.pages_resident), Count{n_back} - n_out);
    atomicMax(reinterpret_cast<Count*>(&state.pages_resident_max), before + n_back - n_out);
  }
}

// Brings tables and counters up to date with entries [counts.n_back], and asks the host for what is not raw. Executed
// by a warp.
__device__ inline void note_exchange(const PageRecallArgs& a, const DeviceStream& s, uint32_t now,
                                     const RecallEntry* entries, RecallCounts& counts) {
  for (uint32_t i = threadIdx.x % kWarp; i < counts.n_back; i += kWarp) {
    if (entries[i].copy == kCopyElsewhere) atomicAdd(&counts.n_asked, 1u);
  }
  __syncwarp();
  if (counts.n_asked != 0) ask_host(a, s.index % a.tables.n_kv_heads, now, entries, counts.n_back);
  for (uint32_t i = threadIdx.x % kWarp; i < counts.n_back; i += kWarp) {
    const RecallEntry e = entries[i];
    if (e.left != kNoRow) leave_pool(a, s, e.left, now, counts);
    s.slots[e.row] = e.slot;
    atomicOr(&s.resident[e.row / 32], 1u << e.row % 32);
  }
  __syncwarp();
  if (threadIdx.x % kWarp == 0) count_exchange(a, s, counts);
}

// --- bytes -----------------------------------------------------------------------------------------------------------

// Copies a page of host memory by `n_threads` threads, of which this one is number i. kTogether reads of a thread are
// on their way at once.
template <uint32_t kTogether = 8>
__device__ inline void copy_page(const std::byte* from, uint16_t* to, uint32_t page_bytes, uint32_t i,
                                 uint32_t n_threads) {
  const auto* in = reinterpret_cast<const uint4*>(from);
  auto* out = reinterpret_cast<uint4*>(to);
  const uint32_t n = page_bytes / sizeof(uint4);
  for (; i < n; i += kTogether * n_threads) {
    uint4 part[kTogether];
#pragma unroll
    for (uint32_t j = 0; j < kTogether; ++j)
      if (i + j * n_threads < n) part[j] = __ldcv(in + i + j * n_threads);
#pragma unroll
    for (uint32_t j = 0; j < kTogether; ++j)
      if (i + j * n_threads < n) out[i + j * n_threads] = part[j];
  }
}

// Waits until the host has sent the stream's pages. False: they did not come in time, or some cannot be read; the step
// is late. Executed by one thread.
__device__ inline bool wait_for_host(const PageRecallArgs& a, uint32_t kv_head, uint32_t now) {
  const RecallAnswer* answer = a.host.answers + kv_head;
  const uint32_t ticket = ticket_of(now, a.tables.n_layers, a.layer);
  const uint64_t started = now_ns();
  while (acquire_host(&answer->ticket) != ticket) {
    if (now_ns() - started <= a.host.late_ns) continue;
    a.state->is_late = 1;
    return false;
  }
  const bool came = acquire_host(&answer->is_refused) == 0;
  if (!came) a.state->is_late = 1;
  return came;
}

// Where the host has put page i of those that come back.
__device__ inline const std::byte* sent_page(const PageRecallArgs& a, uint32_t kv_head, uint32_t i) {
  return a.host.pages + (size_t{kv_head} * a.host.most + i) * a.page_bytes;
}

#endif  // __CUDACC__

}  // namespace weir::cuda
