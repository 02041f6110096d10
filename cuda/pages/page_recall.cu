// Computes: recall of a decode step in one layer, as lib/policy/arkvale.cpp does it on the host, ties included; and the
// copies between the pool and the host's memory that recall needs elsewhere.
// Launch: page_recall is two kernels. The choice has a block for each stream of the layer. The copies have a block for
// each page that can come back; a block without a page ends at once.
// Traffic: the pages that come back cross the bus once, 16 bytes a thread.
// Paper: Chen et al., "ArkVale", NeurIPS 2024, sec. 4; docs/algorithms.md, "ArkVale".
#include "cuda/pages/page_recall.cuh"

#include <algorithm>

#include "cuda/common/device.cuh"
#include "cuda/pages/leave_page.cuh"
#include "cuda/pages/page_digest.cuh"

namespace weir::cuda {
namespace {

constexpr uint32_t kChoose = 512;  // threads of a block
constexpr uint32_t kCopy = 256;
constexpr uint32_t kVector = 16;  // bytes

using Count = unsigned long long;

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

struct Candidate {
  uint64_t key;  // the least leaves or comes first
  uint32_t row, copy;
};

// The shared memory of a block: candidates to come back, candidates to leave, and a bit for each row that is wanted.
struct Lists {
  Candidate* wanted;      // [wanted at most]
  Candidate* leaving;     // [n_slots]
  Candidate *back, *out;  // those that do, in order
  uint32_t* is_wanted;
};

struct Counts {
  uint32_t n_wanted, n_leaving, n_back, n_asked, warps[kChoose / kWarp];
  uint32_t n_cold, n_lost, n_prompt;
};

__device__ DeviceStream stream_at(const PageRecallArgs& a, uint32_t stream) {
  const KvTables& t = a.tables;
  const size_t i = t.row_begin[stream];
  return {t.slots + i,
          t.first_pos + i,
          t.len + i,
          t.flags + i,
          t.stamp + i,
          t.last_score + i,
          nullptr,
          t.n_pages[stream],
          a.capacity,
          i,
          stream,
          t.slot_begin[stream],
          t.slot_begin[stream + 1],
          t.n_resident[stream],
          a.resident + size_t{stream} * resident_words(a.max_capacity)};
}

// Moves the n candidates with the least (key, row) to the front, in order. Executed by one warp.
__device__ void front_least(Candidate* list, uint32_t n_list, uint32_t n) {
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

// The same by all threads of the block, for lists that are not longer than the block: each finds its candidate's place.
// `sorted` [n] takes the first ones. The block synchronises afterwards.
__device__ void sort_least(const Candidate* list, uint32_t n_list, uint32_t n, Candidate* sorted) {
  if (threadIdx.x >= n_list) return;
  const Candidate mine = list[threadIdx.x];
  uint32_t before = 0;
  for (uint32_t i = 0; i < n_list; ++i) {
    const Candidate c = list[i];
    before += c.key < mine.key || (c.key == mine.key && c.row < mine.row) ? 1u : 0u;
  }
  if (before < n) sorted[before] = mine;
}

// Marks the wanted rows, and collects those that are cold and have a copy.
__device__ void collect_wanted(const PageRecallArgs& a, const DeviceStream& s, const uint32_t* list, uint32_t n,
                               uint32_t now, bool may_come_back, const Lists& lists, Counts& counts) {
  for (uint32_t i = threadIdx.x; i < n; i += kChoose) {
    const uint32_t row = list[i];
    if (a.rules.stamps_wanted) s.stamp[row] = now;
    atomicOr(&lists.is_wanted[row / 32], 1u << row % 32);
    if (!may_come_back || s.slots[row] != kNoSlot) continue;
    const uint32_t copy = a.raw_index[s.first + row];
    if (copy == kNoRaw) continue;
    // Pinned pages come back first, then those with the best score.
    const uint64_t key = uint64_t{(s.flags[row] & kPageKept) != 0 ? 0u : 1u} << 32 | ~key_of_score(s.last_score[row]);
    lists.wanted[atomicAdd(&counts.n_wanted, 1u)] = {key, row, copy};
  }
}

__device__ void collect_leaving(const PageRecallArgs& a, const DeviceStream& s, const Lists& lists, Counts& counts) {
  const uint32_t end = s.n_pages - min(s.n_pages, 1 + a.rules.protect.pages);
  for (uint32_t word = threadIdx.x; word < resident_words(end); word += kChoose) {
    for (uint32_t bits = s.resident[word] & ~lists.is_wanted[word]; bits != 0; bits &= bits - 1) {
      const uint32_t row = word * 32 + __ffs(static_cast<int>(bits)) - 1;
      if (row >= end || (s.flags[row] & kPageStays) != 0) continue;
      const uint64_t key = uint64_t{s.stamp[row]} << 32 | key_of_score(s.last_score[row]);
      lists.leaving[atomicAdd(&counts.n_leaving, 1u)] = {key, row, 0};
    }
  }
}

// Gives page i of those that come back its slot. Executed by one thread.
__device__ void bring_back(const PageRecallArgs& a, const DeviceStream& s, uint32_t i, uint32_t now, const Lists& lists,
                           Counts& counts) {
  const uint32_t n_free = static_cast<uint32_t>(s.free_end - s.free_begin) - s.n_resident;
  const Candidate back = lists.back[i];
  uint32_t slot;
  if (i < n_free) {
    slot = a.tables.free_slots[s.free_end - 1 - (s.n_resident + i)];
  } else {
    const uint32_t row = lists.out[i - n_free].row;
    slot = s.slots[row];
    record_event(a.state, a.events, a.tables.n_kv_heads, s, row, now - 1);
    const bool is_lost = a.raw_index[s.first + row] == kNoRaw;
    atomicAdd(is_lost ? &counts.n_lost : &counts.n_cold, 1u);
    if ((s.flags[row] & kPagePrompt) != 0) atomicAdd(&counts.n_prompt, 1u);
    if (is_lost) {
      s.flags[row] &= ~uint32_t{kPageKept};
      spoil_digest(a.digests + (s.first - a.tables.row_begin[a.layer * a.tables.n_kv_heads] + row) * a.digest_elements,
                   a.digest_elements, 0, 1);
    }
    s.slots[row] = kNoSlot;
    atomicAnd(&s.resident[row / 32], ~(1u << row % 32));
  }
  s.slots[back.row] = slot;
  atomicOr(&s.resident[back.row / 32], 1u << back.row % 32);
  a.entries[size_t{s.index} * a.host.most + i] = {back.row, slot, back.copy};
  if (back.copy == kNotRaw) atomicAdd(&counts.n_asked, 1u);
}

// Asks the host for the pages whose copies are not raw. Executed by the block.
__device__ void ask_host(const PageRecallArgs& a, uint32_t kv_head, uint32_t now, const Lists& lists,
                         const Counts& counts) {
  for (uint32_t i = threadIdx.x; i < counts.n_back; i += kChoose)
    a.host.rows[size_t{kv_head} * a.host.most + i] = lists.back[i].copy == kNotRaw ? lists.back[i].row : kNoAskedRow;
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x != 0) return;
  RecallPost& post = a.host.posts[kv_head];
  post.layer = a.layer;
  post.n = counts.n_back;
  __threadfence_system();
  *static_cast<volatile uint32_t*>(&post.ticket) = ticket_of(now, a.tables.n_layers, a.layer);
}

// What the block's stream brought back, in the tables' and the step's counters. Executed by one thread.
__device__ void count(const PageRecallArgs& a, const DeviceStream& s, const Counts& counts) {
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

// The number of `n`s of the threads before this one, and of all. Executed by the block; it may be called again after a
// barrier.
__device__ uint32_t sum_before(uint32_t n, Counts& counts, uint32_t& all) {
  const uint32_t lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  uint32_t sum = n;
#pragma unroll
  for (uint32_t i = 1; i < kWarp; i *= 2) {
    const uint32_t other = __shfl_up_sync(kAllLanes, sum, i);
    sum += lane >= i ? other : 0u;
  }
  if (lane == kWarp - 1) counts.warps[warp] = sum;
  __syncthreads();
  uint32_t before = sum - n;
  all = 0;
#pragma unroll
  for (uint32_t w = 0; w < kChoose / kWarp; ++w) {
    before += w < warp ? counts.warps[w] : 0u;
    all += counts.warps[w];
  }
  return before;
}

// Leaves in a list of n rows, ascending, those whose pages are in the pool.
__device__ void keep_resident(const DeviceStream& s, uint32_t n, uint32_t* list, uint32_t* n_list, Counts& counts) {
  uint32_t done = 0;
  for (uint32_t first = 0; first < n; first += kChoose) {
    const uint32_t i = first + threadIdx.x, row = i < n ? list[i] : 0;
    const bool is_there = i < n && s.slots[row] != kNoSlot;
    uint32_t all = 0;
    const uint32_t before = sum_before(is_there ? 1 : 0, counts, all);
    if (is_there) list[done + before] = row;
    done += all;
    __syncthreads();
  }
  if (threadIdx.x == 0) *n_list = done;
}

// Lists all rows whose pages are in the pool, ascending.
__device__ void list_resident(const DeviceStream& s, uint32_t* list, uint32_t* n_list, Counts& counts) {
  uint32_t done = 0;
  for (uint32_t first = 0; first < resident_words(s.n_pages); first += kChoose) {
    const uint32_t word = first + threadIdx.x;
    uint32_t bits = word < resident_words(s.n_pages) ? s.resident[word] : 0, all = 0;
    uint32_t at = done + sum_before(__popc(bits), counts, all);
    for (; bits != 0; bits &= bits - 1) list[at++] = word * 32 + __ffs(static_cast<int>(bits)) - 1;
    done += all;
    __syncthreads();
  }
  if (threadIdx.x == 0) *n_list = done;
}

// What comes back, what leaves for it, and their new slots.
__device__ void exchange(const PageRecallArgs& a, const DeviceStream& s, uint32_t now, Lists& lists, Counts& counts) {
  collect_leaving(a, s, lists, counts);
  __syncthreads();
  const uint32_t n_wanted = counts.n_wanted, n_leaving = counts.n_leaving;
  const uint32_t n_free = static_cast<uint32_t>(s.free_end - s.free_begin) - s.n_resident;
  const uint32_t n_back = min(min(n_wanted, a.host.most), n_free + n_leaving), n_out = n_back - min(n_back, n_free);
  if (threadIdx.x == 0) counts.n_back = n_back;
  if (max(n_wanted, n_leaving) <= kChoose) {
    sort_least(lists.wanted, n_wanted, n_back, lists.back);
    sort_least(lists.leaving, n_leaving, n_out, lists.out);
  } else {
    if (threadIdx.x < kWarp) front_least(lists.wanted, n_wanted, n_back);
    if (threadIdx.x / kWarp == 1) front_least(lists.leaving, n_leaving, n_out);
    lists.back = lists.wanted;
    lists.out = lists.leaving;
  }
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < n_back; i += kChoose) bring_back(a, s, i, now, lists, counts);
  __syncthreads();
  if (counts.n_asked != 0) ask_host(a, s.index % a.tables.n_kv_heads, now, lists, counts);
}

__global__ void __launch_bounds__(kChoose) choose_kernel(const PageRecallArgs a) {
  extern __shared__ Candidate candidates[];
  __shared__ Counts counts;
  const uint32_t kv_head = blockIdx.x, stream = a.layer * a.tables.n_kv_heads + kv_head;
  Candidate* const sorted = candidates + a.rules.select_budget + a.n_slots;
  Lists lists = {candidates, candidates + a.rules.select_budget, sorted, sorted + a.host.most,
                 reinterpret_cast<uint32_t*>(sorted + 2 * a.host.most)};
  if (threadIdx.x == 0) counts = {};
  for (uint32_t i = threadIdx.x; i < resident_words(a.capacity); i += kChoose) lists.is_wanted[i] = 0;
  __syncthreads();
  wait_for_previous();
  start_next();
  const DeviceStream s = stream_at(a, stream);
  uint32_t* const list = a.select + size_t{kv_head} * a.capacity;
  const uint32_t n = a.n_select[kv_head], now = a.state->n_tokens + 1;
  if (!a.only_lists && *static_cast<volatile uint32_t*>(&a.state->is_late) == 0) {
    const bool repeats = a.heads[stream].now == now;
    collect_wanted(a, s, list, n, now, !repeats, lists, counts);
    __syncthreads();
    if (!repeats && counts.n_wanted != 0) exchange(a, s, now, lists, counts);
    if (threadIdx.x == 0 && !repeats) {
      if (counts.n_back != 0) count(a, s, counts);
      a.heads[stream] = {now, counts.n_back};
    } else if (threadIdx.x == 0) {
      a.heads[stream].n = 0;  // their pages are in the pool
    }
  } else if (threadIdx.x == 0) {
    a.heads[stream].n = 0;
  }
  __syncthreads();
  if (a.rules.attend_wanted) {
    keep_resident(s, n, list, a.n_select + kv_head, counts);
  } else {
    list_resident(s, list, a.n_select + kv_head, counts);
  }
}

// 16 bytes of a page that the host wrote.
__device__ inline uint4 load_host(const uint4* p) { return __ldcv(p); }

__device__ void copy_page(const std::byte* from, uint16_t* to, uint32_t page_bytes) {
  const auto* in = reinterpret_cast<const uint4*>(from);
  auto* out = reinterpret_cast<uint4*>(to);
  for (uint32_t i = threadIdx.x; i < page_bytes / kVector; i += kCopy) out[i] = load_host(in + i);
}

// Waits until the host has sent the stream's pages. False: the step is late.
__device__ bool wait_for_host(const PageRecallArgs& a, uint32_t kv_head, uint32_t ticket) {
  const RecallAnswer* answer = a.host.answers + kv_head;
  const uint64_t started = now_ns();
  while (acquire_host(&answer->ticket) != ticket) {
    if (now_ns() - started > a.host.late_ns) return false;
  }
  return acquire_host(&answer->is_refused) == 0;
}

__global__ void __launch_bounds__(kCopy) fetch_kernel(const PageRecallArgs a) {
  __shared__ bool came;
  wait_for_previous();
  start_next();
  const uint32_t i = blockIdx.x, kv_head = blockIdx.y, stream = a.layer * a.tables.n_kv_heads + kv_head;
  if (i >= a.heads[stream].n) return;
  const RecallEntry entry = a.entries[size_t{stream} * a.host.most + i];
  uint16_t* const page = a.pool + size_t{entry.slot} * (a.page_bytes / sizeof(uint16_t));
  if (entry.copy != kNotRaw) {
    copy_page(a.host.raw_pages + size_t{entry.copy} * a.page_bytes, page, a.page_bytes);
    return;
  }
  if (threadIdx.x == 0) {
    came = wait_for_host(a, kv_head, ticket_of(a.state->n_tokens + 1, a.tables.n_layers, a.layer));
    if (!came) a.state->is_late = 1;
  }
  __syncthreads();
  if (came) copy_page(a.host.pages + (size_t{kv_head} * a.host.most + i) * a.page_bytes, page, a.page_bytes);
}

__global__ void __launch_bounds__(kCopy) spoil_kernel(const SpoilLostArgs a) {
  const uint32_t stream = blockIdx.x;
  if (a.tables.window[stream] != 0) return;
  const size_t first = a.tables.row_begin[stream];
  for (uint32_t row = threadIdx.x; row < a.tables.n_pages[stream]; row += kCopy) {
    if (a.tables.slots[first + row] == kNoSlot && a.raw_index[first + row] == kNoRaw)
      spoil_digest(a.digests + (first + row) * a.digest_elements, a.digest_elements, 0, 1);
  }
}

// The bits of the rows in the pool, after the host has changed the tables.
__global__ void __launch_bounds__(kCopy) resident_kernel(const KvTables t, uint32_t* resident, uint32_t words) {
  const uint32_t stream = blockIdx.x;
  const size_t first = t.row_begin[stream];
  for (uint32_t word = threadIdx.x; word < words; word += kCopy) {
    uint32_t bits = 0;
    for (uint32_t row = word * 32; row < min(word * 32 + 32, t.n_pages[stream]); ++row)
      bits |= t.slots[first + row] != kNoSlot ? 1u << row % 32 : 0u;
    resident[size_t{stream} * words + word] = bits;
  }
}

__global__ void __launch_bounds__(kCopy)
    row_out_kernel(const KvTables t, uint32_t row, const uint16_t* pool, uint32_t page_bytes, std::byte* pages) {
  const uint32_t stream = blockIdx.x;
  const size_t first = t.row_begin[stream];
  // The pages of a window follow each other.
  const uint32_t at = t.window[stream] == 0 ? row : row - t.first_pos[first] / kPageTokens;
  if (at >= t.n_pages[stream]) return;
  const uint32_t slot = t.slots[first + at];
  const auto* in = reinterpret_cast<const uint4*>(pool) + size_t{slot} * (page_bytes / kVector);
  auto* out = reinterpret_cast<uint4*>(pages + size_t{stream} * page_bytes);
  for (uint32_t i = threadIdx.x; i < page_bytes / kVector; i += kCopy) out[i] = in[i];
}

__global__ void __launch_bounds__(kCopy)
    pages_kernel(uint16_t* pool, uint32_t page_bytes, std::byte* pages, const uint32_t* slots, bool in) {
  const uint32_t slot = read_host(slots + blockIdx.x);
  uint16_t* const page = pool + size_t{slot} * (page_bytes / sizeof(uint16_t));
  std::byte* const other = pages + size_t{blockIdx.x} * page_bytes;
  if (in) {
    copy_page(other, page, page_bytes);
  } else {
    copy_page(reinterpret_cast<const std::byte*>(page), reinterpret_cast<uint16_t*>(other), page_bytes);
  }
}

__global__ void __launch_bounds__(kCopy) unit_kernel(const LoadUnitArgs a) {
  const uint32_t at = blockIdx.y * kSplitPages + blockIdx.x;
  const uint32_t page = read_host(a.host.page_slots + at), index = page & ((1u << UnitPage::kBits) - 1);
  uint16_t* const to = a.window + size_t{at} * (a.page_bytes / sizeof(uint16_t));
  if (threadIdx.x == 0) {
    a.slots[at] = at;
    a.first_pos[at] = read_host(a.host.unit_pos + at);
    a.len[at] = read_host(a.host.unit_len + at);
    if (blockIdx.x == 0) a.n_pages[blockIdx.y] = kSplitPages;
  }
  switch (static_cast<UnitPage::Where>(page >> UnitPage::kBits)) {
    case UnitPage::kInPool: {
      const auto* in = reinterpret_cast<const uint4*>(a.pool) + size_t{index} * (a.page_bytes / kVector);
      auto* out = reinterpret_cast<uint4*>(to);
      for (uint32_t i = threadIdx.x; i < a.page_bytes / kVector; i += kCopy) out[i] = in[i];
      break;
    }
    case UnitPage::kRaw:
      copy_page(a.host.raw_pages + size_t{index} * a.page_bytes, to, a.page_bytes);
      break;
    case UnitPage::kStaged:
      copy_page(a.host.pages + size_t{index} * a.page_bytes, to, a.page_bytes);
      break;
    case UnitPage::kLostPage:
      break;
  }
}

__global__ void merge_kernel(const MergeUnitArgs a) {
  const uint32_t row = blockIdx.x;
  const float before = a.lse[row], more = a.unit_lse[row], high = fmaxf(before, more);
  const float share = before == -INFINITY ? 0.0f : expf(before - high);
  const float unit_share = more == -INFINITY ? 0.0f : expf(more - high), sum = share + unit_share;
  __syncthreads();
  if (sum == 0.0f) return;
  const float weight = share / sum, unit_weight = unit_share / sum;
  for (uint32_t i = threadIdx.x; i < a.head_dim; i += blockDim.x) {
    const size_t at = size_t{row} * a.head_dim + i;
    // What saw nothing may hold anything.
    const float x = weight == 0.0f ? 0.0f : weight * a.out[at];
    a.out[at] = unit_weight == 0.0f ? x : x + unit_weight * a.unit_out[at];
  }
  if (threadIdx.x == 0) a.lse[row] = high + logf(sum);
}

__device__ uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// Sums of four uniform numbers, so that about 2.7 bits of each exponent are news, as in models' keys and values.
__global__ void __launch_bounds__(kCopy) fill_row_kernel(const FillRowArgs a) {
  const uint32_t stream = blockIdx.x, d = a.head_dim, slot = read_host(a.slots + stream);
  uint16_t* const page = a.pool + size_t{slot} * 2 * kPageTokens * d;
  for (uint32_t i = threadIdx.x; i < 2 * kPageTokens * d; i += kCopy) {
    const uint64_t z = mix(a.seed + (uint64_t{stream} * 2 * kPageTokens * d + i + 1) * 0x9E3779B97F4A7C15u);
    const float sum = static_cast<float>((z & 0xFFFFu) + (z >> 16 & 0xFFFFu) + (z >> 32 & 0xFFFFu) + (z >> 48));
    const float scale = i % 3 == 0 ? 0.5f : i % 3 == 1 ? 1.0f : 2.0f;
    page[i] = float_to_bf16((sum * 0x1p-16f - 2.0f) * scale);
    a.pages[size_t{stream} * 2 * kPageTokens * d + i] = page[i];
  }
  __syncthreads();
  if (a.digest == DigestKind::kNone || a.digest == DigestKind::kSphereMean || a.tables.window[stream] != 0) return;
  uint16_t* const digest = a.digests + (size_t{a.tables.row_begin[stream]} + a.row) * a.digest_elements;
  for (uint32_t i = threadIdx.x; i < d; i += kCopy) digest_channel(a.digest, PageChannel(page, d, i), d, i, digest);
}

}  // namespace

Status page_recall(OpContext& cx, const PageRecallArgs& a) {
  const size_t n_candidates = size_t{a.rules.select_budget} + a.n_slots + 2 * size_t{a.host.most};
  const size_t shared = n_candidates * sizeof(Candidate) + resident_words(a.capacity) * sizeof(uint32_t);
  if (shared > 40 * 1024) {
    WEIR_CUDA_TRY(
        cudaFuncSetAttribute(choose_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)),
        "page_recall");
  }
  WEIR_TRY(
      launch("page_recall", choose_kernel, dim3(a.tables.n_kv_heads), dim3(kChoose), shared, stream_of(cx), true, a));
  if (a.only_lists) return {};
  return launch("page_fetch", fetch_kernel, dim3(a.host.most, a.tables.n_kv_heads), dim3(kCopy), 0, stream_of(cx), true,
                a);
}

Status spoil_lost(OpContext& cx, const SpoilLostArgs& a) {
  const uint32_t n_streams = a.tables.n_layers * a.tables.n_kv_heads;
  return launch("spoil_lost", spoil_kernel, dim3(n_streams), dim3(kCopy), 0, stream_of(cx), false, a);
}

Status mark_resident(OpContext& cx, const KvTables& t, uint32_t* resident, uint32_t max_capacity) {
  return launch("mark_resident", resident_kernel, dim3(t.n_layers * t.n_kv_heads), dim3(kCopy), 0, stream_of(cx), false,
                t, resident, resident_words(max_capacity));
}

Status copy_row_out(OpContext& cx, const KvTables& t, uint32_t row, const uint16_t* pool, uint32_t page_bytes,
                    std::byte* pages) {
  return launch("copy_row_out", row_out_kernel, dim3(t.n_layers * t.n_kv_heads), dim3(kCopy), 0, stream_of(cx), false,
                t, row, pool, page_bytes, pages);
}

Status copy_pages(OpContext& cx, uint16_t* pool, uint32_t page_bytes, std::byte* pages, const uint32_t* slots,
                  uint32_t n, bool in) {
  if (n == 0) return {};
  return launch("copy_pages", pages_kernel, dim3(n), dim3(kCopy), 0, stream_of(cx), false, pool, page_bytes, pages,
                slots, in);
}

Status load_unit(OpContext& cx, const LoadUnitArgs& a) {
  return launch("load_unit", unit_kernel, dim3(kSplitPages, a.n_kv_heads), dim3(kCopy), 0, stream_of(cx), false, a);
}

Status merge_unit(OpContext& cx, const MergeUnitArgs& a) {
  return launch("merge_unit", merge_kernel, dim3(a.n_rows), dim3(128), 0, stream_of(cx), false, a);
}

Status fill_row(OpContext& cx, const FillRowArgs& a) {
  const uint32_t n_streams = a.tables.n_layers * a.tables.n_kv_heads;
  return launch("fill_row", fill_row_kernel, dim3(n_streams), dim3(kCopy), 0, stream_of(cx), false, a);
}

}  // namespace weir::cuda
