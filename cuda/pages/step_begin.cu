// Computes: what precedes the layers of a decode step. Pages are evicted by the policy's rules, every stream gets room
// for the token, and the rotation of its position is computed. The same as make_room (lib/policy/room.h),
// KvCache::evict, KvCache::reserve and RopeTable::fill.
// Launch: the first block does what all streams share; in the other blocks each warp has a stream.
// Numerics: tables and counters are exact, angles are f64.
// Assumes: every stream has, or can make, room for a page. make_policy checks this for a policy's rules, the host for
// prompts and pins.
#include "cuda/ops.h"
#include "cuda/pages/leave_page.cuh"
#include "cuda/pages/left_sums.cuh"
#include "device/kernels/step_begin.h"

namespace weir::cuda {
namespace {

constexpr uint32_t kBlock = 128;
constexpr uint32_t kMoved = 4;  // rows of a lane that are loaded before any of them is stored

struct Shared {
  uint32_t n_evicted, n_prompt_evicted, n_slid;
};

// Removes a table row: the rows after it move to the next lower index. Executed by one warp.
__device__ void remove_row(DeviceStream& s, uint32_t row) {
  const uint32_t lane = threadIdx.x % kWarp;
  const uint32_t n = --s.n_pages;
  for (uint32_t first = row; first < n; first += kWarp * kMoved) {
    RowValues moved[kMoved];
#pragma unroll
    for (uint32_t i = 0; i < kMoved; ++i) moved[i] = s.get(min(first + i * kWarp + lane + 1, n));
    __syncwarp();
#pragma unroll
    for (uint32_t i = 0; i < kMoved; ++i) {
      const uint32_t to = first + i * kWarp + lane;
      if (to < n) s.set(to, moved[i]);
    }
    __syncwarp();
  }
}

// With recall: the bit that says whether a row's page is in the pool.
__device__ void mark_resident(const StepBeginArgs& a, uint32_t stream, uint32_t row, bool is_there) {
  uint32_t& word = a.resident[size_t{stream} * resident_words(a.max_capacity) + row / 32];
  word = is_there ? word | 1u << row % 32 : word & ~(1u << row % 32);
}

// With recall: pages of one stream become cold until there is a slot. Executed by one warp.
__device__ void make_slots(const StepBeginArgs& a, uint32_t stream, const Room& room, Shared& shared) {
  const uint32_t lane = threadIdx.x % kWarp;
  DeviceStream s = stream_at(a.tables, stream);
  const uint32_t n = s.n_resident;
  for (;;) {
    const uint32_t row = victim_of<VictimRule::kCold>(a.rules, s, room);
    if (row == kNoRow) break;
    const bool is_lost = a.raw_index[s.first + row] == kNoCopy;
    if (is_lost && a.digests != nullptr)
      spoil_digest(a.digests + (s.first + row) * a.digest_elements, a.digest_elements, lane, kWarp);
    if (lane == 0) {
      record_event(a.state, a.events, a.tables.n_kv_heads, s, row, room.pos);
      a.tables.free_slots[s.free_end - s.n_resident] = s.slots[row];
      atomicAdd(&shared.n_evicted, 1u);
      if ((s.flags[row] & kPagePrompt) != 0) atomicAdd(&shared.n_prompt_evicted, 1u);
      using Count = unsigned long long;
      atomicAdd(reinterpret_cast<Count*>(is_lost ? &a.state->pages_lost : &a.state->pages_cold), Count{1});
      if (is_lost) s.flags[row] &= ~uint32_t{kPageKept};
      s.slots[row] = kNoSlot;
      mark_resident(a, stream, row, false);
    }
    --s.n_resident;
    __syncwarp();
  }
  if (lane == 0 && s.n_resident != n) a.tables.n_resident[stream] = s.n_resident;
}

// Evicts the pages of one stream that must leave. Executed by one warp.
template <VictimRule kRule>
__device__ void make_room(const StepBeginArgs& a, uint32_t stream, Room room, Shared& shared) {
  if constexpr (kRule == VictimRule::kCold) {
    make_slots(a, stream, room, shared);
    return;
  }
  const uint32_t lane = threadIdx.x % kWarp;
  DeviceStream s = stream_at(a.tables, stream);
  const uint32_t n = s.n_pages;
  for (;;) {
    const uint32_t row = victim_of<kRule>(a.rules, s, room);
    if (row == kNoRow) break;
    if (lane == 0) {
      record_event(a.state, a.events, a.tables.n_kv_heads, s, row, room.pos);
      a.tables.free_slots[s.free_end - s.n_pages] = s.slots[row];
      atomicAdd(&shared.n_evicted, 1u);
      if ((s.flags[row] & kPagePrompt) != 0) atomicAdd(&shared.n_prompt_evicted, 1u);
    }
    __syncwarp();
    remove_row(s, row);
    room.opens = max(room.opens, a.rules.leave_at_once);
  }
  if (lane == 0 && s.n_pages != n) a.tables.n_pages[stream] = s.n_pages;
}

// Removes the pages of a stream that are outside its window, as KvCache::slide. Executed by one warp.
__device__ void slide(const StepBeginArgs& a, uint32_t stream, uint32_t window, uint32_t pos, Shared& shared) {
  const KvTables& t = a.tables;
  const uint32_t lane = threadIdx.x % kWarp;
  DeviceStream s = stream_at(t, stream);
  const uint32_t n = s.n_pages, front = t.front_of(stream);
  while (s.n_pages > front && !s.is_filling(front) && s.end(front) + window <= uint64_t{pos} + 1) {
    if (a.left.sums != nullptr && !t.is_local(stream)) add_left_page(a.left, left_rank(t, stream), s, front);
    if (lane == 0) {
      t.free_slots[s.free_end - s.n_pages] = s.slots[front];
      atomicAdd(&shared.n_slid, 1u);
    }
    __syncwarp();
    remove_row(s, front);
  }
  if (lane != 0 || s.n_pages == n) return;
  t.n_pages[stream] = s.n_pages;
  if (t.n_resident != nullptr) t.n_resident[stream] = s.n_pages;
}

// Whether a page can leave in this step at all.
template <VictimRule kRule>
__device__ bool pages_may_leave(const StepBeginArgs& a, const Room& room) {
  const StepRules& rules = a.rules;
  if (a.tables.has_windows) return true;
  if (kRule == VictimRule::kNever) return false;
  const bool any_time = (kRule == VictimRule::kWindow && rules.window_tokens != 0) ||
                        (kRule == VictimRule::kStalest && rules.decode_pages != 0);
  return room.opens != 0 || any_time;
}

// Reserves room for one token in the stream's table. Executed by one thread, after its warp's evictions. A stream can
// only be full here if the policy's rules are wrong. Then the token takes the stream's last page, not the table of the
// next stream, and the host is told.
__device__ void reserve(const StepBeginArgs& a, uint32_t stream, const Room& room) {
  const KvTables& t = a.tables;
  const size_t first = t.row_begin[stream];
  const uint32_t capacity = t.row_begin[stream + 1] - t.row_begin[stream];
  const uint32_t n = t.n_pages[stream];
  if (room.opens == 0) {
    ++t.len[first + n - 1];
    t.append_row[stream] = n - 1;
    return;
  }
  const uint32_t n_used = t.n_resident == nullptr ? n : t.n_resident[stream];
  const bool has_room = n < capacity && n_used < t.slot_begin[stream + 1] - t.slot_begin[stream];
  const size_t row = first + (has_room ? n : n - 1);
  RowValues opened = {.first_pos = room.pos, .len = 1, .stamp = room.pos + 1};
  if (has_room) {
    opened.slots = t.free_slots[t.slot_begin[stream + 1] - 1 - n_used];
    if (t.n_resident != nullptr) t.n_resident[stream] = n_used + 1;
    if (a.resident != nullptr) mark_resident(a, stream, n, true);
  } else {
    opened.slots = t.slots[row];
    atomicAdd(&a.state->n_without_room, 1u);
  }
  t.set(row, opened);
  t.append_row[stream] = has_room ? n : n - 1;
  if (has_room) t.n_pages[stream] = n + 1;
}

// The rotations of one position. Executed by one block.
__device__ void fill_rotation(const StepBeginArgs& a, uint32_t pos, float* cos_sin) {
  const uint32_t half = a.rope_dim / 2;
  for (uint32_t i = threadIdx.x; i < a.n_rotations * half; i += kBlock) {
    const uint32_t rotation = i / half;
    float* pair = cos_sin + size_t{rotation} * a.stride + 2 * (i - rotation * half);
    double sine = 0.0, cosine = 0.0;
    sincos(static_cast<double>(pos) * a.angles[i], &sine, &cosine);
    pair[0] = static_cast<float>(cosine * a.magnitude[rotation]);
    pair[1] = static_cast<float>(sine * a.magnitude[rotation]);
  }
}

// The query's position in the cache, as the front rows see it. All streams under the policy hold the same positions.
// Executed by the block of the ruled stream, after its evictions.
__device__ uint32_t in_cache_pos(const StepBeginArgs& a, uint32_t pos) {
  if (a.rules.in_cache_limit != 0) return min(pos, a.rules.in_cache_limit);
  const uint32_t front = a.rules.front_rows;
  if (a.tables.n_pages[a.tables.ruled_stream] <= front) return pos;
  return pos - (a.tables.first_pos[a.tables.row_begin[a.tables.ruled_stream] + front] - front * kPageTokens);
}

// Adds up what all blocks' streams changed; the last block to arrive knows the number of pages. Executed by one thread
// of each block but the first.
__device__ void count_pages(const StepBeginArgs& a, const Shared& shared, uint32_t n_opened) {
  using Count = unsigned long long;
  StepState& state = *a.state;
  const Count change = Count{n_opened} - shared.n_evicted - shared.n_slid;  // wraps around as the sum does
  if (shared.n_prompt_evicted != 0)
    atomicAdd(reinterpret_cast<Count*>(&state.prompt_pages_evicted), Count{shared.n_prompt_evicted});
  if (change != 0) atomicAdd(reinterpret_cast<Count*>(&state.pages_resident), change);
  __threadfence();
  if (atomicAdd(a.counter, 1u) != gridDim.x - 2) return;
  __threadfence();
  const uint64_t resident = atomicAdd(reinterpret_cast<Count*>(&state.pages_resident), Count{0});
  state.pages_resident_max = max(state.pages_resident_max, resident);
  state.pages_evicted_before = atomicAdd(reinterpret_cast<Count*>(&state.pages_evicted), Count{0});
  *a.counter = 0;
}

template <VictimRule kRule>
__global__ void __launch_bounds__(kBlock) step_begin_kernel(const StepBeginArgs a) {
  __shared__ Shared shared;
  if (threadIdx.x == 0) shared = {0, 0, 0};
  wait_for_previous();
  start_next();
  const KvTables& t = a.tables;
  const uint32_t n_streams = t.n_layers * t.n_kv_heads;
  const uint32_t pos = a.state->n_tokens;
  const Room room = {pos, pos % kPageTokens == 0 ? 1u : 0u};
  if (blockIdx.x == 0) {
    if (threadIdx.x == 0) a.state->pages_attended = 0;
    fill_rotation(a, pos, a.cos_sin);
    return;
  }
  const uint32_t first_stream = (blockIdx.x - 1) * (kBlock / kWarp), stream = first_stream + threadIdx.x / kWarp;
  const bool leave = pages_may_leave<kRule>(a, room);
  if (leave) __syncthreads();
  if (stream < n_streams) {
    const uint32_t window = t.has_windows ? t.window[stream] : 0;
    if (window != 0) {
      slide(a, stream, window, pos, shared);
    } else if (leave) {
      make_room<kRule>(a, stream, room, shared);
    }
    __syncwarp();
    if (threadIdx.x % kWarp == 0) reserve(a, stream, room);
  }
  const bool fills_sink =
      t.ruled_stream / (kBlock / kWarp) == blockIdx.x - 1 && a.rules.in_cache_pos && a.cos_sin_sink != nullptr;
  if (leave || fills_sink) __syncthreads();
  if (threadIdx.x == 0 && (leave || room.opens != 0))
    count_pages(a, shared, room.opens * min(kBlock / kWarp, n_streams - first_stream));
  if (fills_sink) fill_rotation(a, in_cache_pos(a, pos), a.cos_sin_sink);
}

using Kernel = void (*)(StepBeginArgs);

Kernel kernel_of(VictimRule rule) {
  switch (rule) {
    case VictimRule::kNever:
      return step_begin_kernel<VictimRule::kNever>;
    case VictimRule::kWindow:
      return step_begin_kernel<VictimRule::kWindow>;
    case VictimRule::kStalest:
      return step_begin_kernel<VictimRule::kStalest>;
    case VictimRule::kLightest:
      return step_begin_kernel<VictimRule::kLightest>;
    case VictimRule::kMarked:
      return step_begin_kernel<VictimRule::kMarked>;
    case VictimRule::kRandom:
      return step_begin_kernel<VictimRule::kRandom>;
    case VictimRule::kCold:
      return step_begin_kernel<VictimRule::kCold>;
  }
  return nullptr;
}

}  // namespace

Status step_begin(OpContext& cx, const StepBeginArgs& a) {
  const uint32_t n_streams = a.tables.n_layers * a.tables.n_kv_heads, streams = kBlock / kWarp;
  const uint32_t grid = 1 + (n_streams + streams - 1) / streams;
  return launch("step_begin", kernel_of(a.rules.victim), grid, kBlock, 0, stream_of(cx), true, a);
}

}  // namespace weir::cuda
