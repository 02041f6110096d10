// What comes before the layers of a decode step: pages leave by the policy's rules, every stream gets a place for the token, and its rotation is
// computed. The same as Session::make_room, KvCache::evict, KvCache::reserve and RopeTable::fill. Launch: one block. A warp has a stream while pages leave,
// a thread when places are given. Numerics: tables and counters exact; angles in f64.
// Assumes: every stream has, or can make, room for a page (the host checks prompts and pins before).
#include "cuda/cuda_ops.h"
#include "cuda/victim.cuh"

namespace weir::cuda {
namespace {

constexpr uint32_t kBlock = 1024;

struct Shared {
  uint32_t n_evicted, n_prompt_evicted;
};

// As KvCache::at(stream, 0) and its capacity.
__device__ size_t rows_before(const StepTables& t, uint32_t stream, uint32_t& capacity) {
  const uint32_t layer = stream / t.n_kv_heads, kv_head = stream % t.n_kv_heads;
  const uint32_t wide = min(layer, t.n_wide_layers);
  capacity = layer < t.n_wide_layers ? t.wide_pages : t.pages_per_stream;
  return t.n_kv_heads * (size_t{wide} * t.wide_pages + size_t{layer - wide} * t.pages_per_stream) +
         size_t{kv_head} * capacity;
}

__device__ DeviceStream stream_at(const StepTables& t, uint32_t stream) {
  uint32_t capacity = 0;
  const size_t i = rows_before(t, stream, capacity);
  return {t.slots + i,
          t.first_pos + i,
          t.len + i,
          t.flags + i,
          t.stamp + i,
          t.last_score + i,
          t.prompt_score == nullptr ? nullptr : t.prompt_score + i,
          t.n_pages[stream],
          capacity,
          i};
}

// Moves the rows behind `row` down by one. By one warp.
__device__ void remove_row(DeviceStream& s, uint32_t row) {
  const uint32_t lane = threadIdx.x % kWarp;
  const uint32_t n = --s.n_pages;
  for (uint32_t first = row; first < n; first += kWarp) {
    const uint32_t to = first + lane;
    const bool moves = to < n;
    const uint32_t from = moves ? to + 1 : n;
    const uint32_t slot = s.slots[from], pos = s.first_pos[from], len = s.len[from], flags = s.flags[from];
    const uint32_t stamp = s.stamp[from];
    const float score = s.last_score[from], prompt = s.prompt_score == nullptr ? 0.0f : s.prompt_score[from];
    __syncwarp();
    if (moves) {
      s.slots[to] = slot, s.first_pos[to] = pos, s.len[to] = len, s.flags[to] = flags;
      s.stamp[to] = stamp, s.last_score[to] = score;
      if (s.prompt_score != nullptr) s.prompt_score[to] = prompt;
    }
    __syncwarp();
  }
}

// Lets the victims of one stream go. By one warp.
__device__ void make_room(const StepBeginArgs& a, uint32_t stream, const Room& room, Shared& shared) {
  const uint32_t lane = threadIdx.x % kWarp;
  DeviceStream s = stream_at(a.tables, stream);
  const uint32_t n = s.n_pages;
  for (;;) {
    const uint32_t row = victim_of(a.rules, s, room);
    if (row == kNoRow) break;
    if (lane == 0) {
      a.tables.free_slots[s.first + s.capacity - s.n_pages] = s.slots[row];
      atomicAdd(&shared.n_evicted, 1u);
      if ((s.flags[row] & kPagePrompt) != 0) atomicAdd(&shared.n_prompt_evicted, 1u);
    }
    __syncwarp();
    remove_row(s, row);
  }
  if (lane == 0 && s.n_pages != n) a.tables.n_pages[stream] = s.n_pages;
}

// Can a page leave in this step at all?
__device__ bool pages_may_leave(const StepRules& rules, const Room& room) {
  if (rules.victim == VictimRule::kNever) return false;
  const bool any_time = (rules.victim == VictimRule::kWindow && rules.window_tokens != 0) ||
                        (rules.victim == VictimRule::kStalest && rules.decode_pages != 0);
  return room.opens != 0 || any_time;
}

// A place for one token. By one thread.
__device__ void reserve(const StepTables& t, uint32_t stream, const Room& room) {
  uint32_t capacity = 0;
  const size_t first = rows_before(t, stream, capacity);
  const uint32_t n = t.n_pages[stream];
  if (room.opens == 0) {
    ++t.len[first + n - 1];
    t.append_row[stream] = n - 1;
    return;
  }
  const size_t row = first + n;
  t.slots[row] = t.free_slots[first + capacity - 1 - n];
  t.first_pos[row] = room.pos;
  t.len[row] = 1;
  t.flags[row] = 0;
  t.stamp[row] = room.pos + 1;
  t.last_score[row] = 0.0f;
  if (t.prompt_score != nullptr) t.prompt_score[row] = 0.0f;
  t.append_row[stream] = n;
  t.n_pages[stream] = n + 1;
}

// The rotations of one position, by the block's last threads: the first ones have streams.
__device__ void fill_rotation(const StepBeginArgs& a, uint32_t pos, float* cos_sin) {
  for (uint32_t i = kBlock - 1 - threadIdx.x; i < a.rope_dim / 2; i += kBlock) {
    double sine = 0.0, cosine = 0.0;
    sincos(static_cast<double>(pos) * a.angles[i], &sine, &cosine);
    cos_sin[2 * i] = static_cast<float>(cosine * a.magnitude);
    cos_sin[2 * i + 1] = static_cast<float>(sine * a.magnitude);
  }
}

// Where the query stands in the cache, seen from the front rows: all streams hold the same positions.
__device__ uint32_t in_cache_pos(const StepBeginArgs& a, uint32_t pos) {
  if (a.rules.in_cache_limit != 0) return min(pos, a.rules.in_cache_limit);
  const uint32_t front = a.rules.front_rows;
  if (a.tables.n_pages[0] <= front) return pos;
  return pos - (a.tables.first_pos[front] - front * kPageTokens);
}

__global__ void __launch_bounds__(kBlock, 1) step_begin_kernel(const StepBeginArgs a) {
  __shared__ Shared shared;
  start_next();
  wait_for_previous();
  const StepTables& t = a.tables;
  const uint32_t n_streams = t.n_layers * t.n_kv_heads;
  const uint32_t pos = a.state->n_tokens;
  const Room room = {pos, pos % kPageTokens == 0 ? 1u : 0u};
  if (threadIdx.x == 0) shared = {0, 0};
  fill_rotation(a, pos, a.cos_sin);
  __syncthreads();
  if (pages_may_leave(a.rules, room)) {
    for (uint32_t s = threadIdx.x / kWarp; s < n_streams; s += kBlock / kWarp) make_room(a, s, room, shared);
    __syncthreads();
  }
  for (uint32_t s = threadIdx.x; s < n_streams; s += kBlock) reserve(t, s, room);
  if (threadIdx.x == 0) {
    const uint64_t resident = a.state->pages_resident - shared.n_evicted + room.opens * n_streams;
    a.state->pages_evicted += shared.n_evicted;
    a.state->prompt_pages_evicted += shared.n_prompt_evicted;
    a.state->pages_resident = resident;
    a.state->pages_resident_max = max(a.state->pages_resident_max, resident);
    a.state->pages_attended = 0;
  }
  if (a.rules.in_cache_pos && a.cos_sin_sink != nullptr) {
    __syncthreads();
    fill_rotation(a, in_cache_pos(a, pos), a.cos_sin_sink);
  }
}

}  // namespace

Status step_begin(OpContext& cx, const StepBeginArgs& a) {
  return launch("step_begin", step_begin_kernel, 1, kBlock, 0, stream_of(cx), true, a);
}

}  // namespace weir::cuda
