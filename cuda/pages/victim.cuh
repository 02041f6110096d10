// Which page leaves a stream, by StepRules: what choose_victim of lib/policy/rules.h decides in a decode step, ties
// included.
// Executed by one whole warp.
#pragma once

#include "cuda/common/top_k.cuh"
#include "cuda/ops.h"
#include "kv/tables.h"
#include "ops/step_rules.h"

namespace weir::cuda {

inline constexpr uint32_t kReadAhead = 4;  // rows of a lane that are loaded at once

#ifdef __CUDACC__

// The page table of one stream, as StreamView on the host.
struct DeviceStream : RowColumns {
  uint32_t n_pages;
  uint32_t capacity;
  size_t first;                  // index of its first row among the rows of all streams
  uint32_t index;                // layer * n_kv_heads + KV head
  size_t free_begin, free_end;   // its entries in the stack of free slots, as many as its slots
  uint32_t n_resident;           // pages in the pool
  uint32_t* resident = nullptr;  // with recall: a bit for each row whose page is there

  // The open page while it still takes tokens; it never leaves.
  __device__ bool is_filling(uint32_t row) const { return row + 1 == n_pages && len[row] < kPageTokens; }
  // Position after the row's last token.
  __device__ uint64_t end(uint32_t row) const { return uint64_t{first_pos[row]} + len[row]; }
};

__device__ inline DeviceStream stream_at(const KvTables& t, uint32_t stream) {
  const size_t i = t.row_begin[stream];
  // With windows of single heads a table may have more rows than its stream has slots.
  const uint32_t* begin = t.n_resident == nullptr ? t.slot_begin : t.row_begin;
  const uint32_t capacity = begin[stream + 1] - begin[stream], n = t.n_pages[stream];
  return {t.from(i),
          n,
          capacity,
          i,
          stream,
          t.slot_begin[stream],
          t.slot_begin[stream + 1],
          t.n_resident == nullptr ? n : t.n_resident[stream]};
}

struct Room {
  uint32_t pos;    // position of the next token
  uint32_t opens;  // 1 if that token begins a page
  __device__ bool is_full(const DeviceStream& s) const { return s.n_pages + opens > s.capacity; }
};

// With recall: whether a page stays in the pool.
__device__ inline bool stays_there(const StepRules& rules, uint32_t row, uint32_t flags) {
  return row < rules.front_rows || (flags & kPageStays) != 0;
}

// The row with the lowest key over all lanes; of equal keys the lowest row.
struct LowestRow {
  uint64_t key = ~uint64_t{0};
  uint32_t row = kNoRow;

  // A lane must pass its rows in ascending order.
  __device__ void take(uint64_t other, uint32_t other_row) {
    if (row == kNoRow || other < key) key = other, row = other_row;
  }
  __device__ uint32_t of_warp() const {
    uint64_t best = key;
    uint32_t best_row = row;
#pragma unroll
    for (uint32_t i = kWarp / 2; i > 0; i /= 2) {
      const uint64_t other = __shfl_xor_sync(kAllLanes, best, i);
      const uint32_t other_row = __shfl_xor_sync(kAllLanes, best_row, i);
      if (other < best || (other == best && other_row < best_row)) best = other, best_row = other_row;
    }
    return best_row;
  }
};

// kWindow: the first page after the front rows that may leave, if the stream is full or the window has passed the page.
__device__ inline uint32_t window_victim(const StepRules& rules, const DeviceStream& s, const Room& room) {
  const uint32_t lane = threadIdx.x % kWarp;
  const bool is_full = room.is_full(s);
  if (!is_full && rules.window_tokens == 0) return kNoRow;
  for (uint32_t first = rules.front_rows; first < s.n_pages; first += kWarp) {
    const uint32_t at = first + lane;
    const uint32_t may_leave = __ballot_sync(kAllLanes, at < s.n_pages && (s.flags[at] & kPageStays) == 0);
    if (may_leave == 0) continue;
    const uint32_t row = first + __ffs(static_cast<int>(may_leave)) - 1;
    const bool past_window =
        rules.window_tokens != 0 && row + 1 < s.n_pages && s.end(row) + rules.window_tokens <= uint64_t{room.pos} + 1;
    return is_full || past_window ? row : kNoRow;
  }
  return kNoRow;
}

// kStalest: the page with the least (stamp, last score, row) among those that may leave and are not protected as
// recent.
__device__ inline uint32_t stalest_victim(const StepRules& rules, const DeviceStream& s, const Room& room) {
  const uint32_t lane = threadIdx.x % kWarp;
  const bool is_full = room.is_full(s);
  const bool parted = rules.decode_pages != 0;  // decode pages have a budget of their own
  const uint32_t after = s.n_pages + room.opens;
  if (!is_full && (!parted || after <= rules.decode_pages)) return kNoRow;
  const uint32_t stays = parted && !is_full ? kPageStays | kPagePrompt : kPageStays;
  uint32_t n_prompt = 0, n_free = 0;
#pragma unroll 4
  for (uint32_t row = lane; row < s.n_pages; row += kWarp) {
    const uint32_t flags = s.flags[row];
    n_prompt += (flags & kPagePrompt) != 0 ? 1u : 0u;
    n_free += (flags & stays) == 0 ? 1u : 0u;
  }
  n_prompt = warp_sum(n_prompt);
  n_free = warp_sum(n_free);
  if (!is_full) {
    const bool whole = n_prompt <= rules.whole_prompt_pages;
    if (after - n_prompt <= (whole ? rules.all_pages - n_prompt : rules.decode_pages)) return kNoRow;
  }
  if (n_free == 0) return kNoRow;
  const uint32_t n_candidates = n_free - protected_pages(rules.protect, n_free);
  LowestRow lowest;
  uint32_t seen = 0;
  for (uint32_t first = 0; first < s.n_pages && seen < n_candidates; first += kWarp * kReadAhead) {
    uint32_t flags[kReadAhead], stamp[kReadAhead];
    float score[kReadAhead];
#pragma unroll
    for (uint32_t i = 0; i < kReadAhead; ++i) {
      const uint32_t row = min(first + i * kWarp + lane, s.n_pages - 1);
      flags[i] = s.flags[row], stamp[i] = s.stamp[row], score[i] = s.last_score[row];
      if (rules.by_gap) stamp[i] += s.last_gap[row];
    }
#pragma unroll
    for (uint32_t i = 0; i < kReadAhead; ++i) {
      const uint32_t row = first + i * kWarp + lane;
      const bool free = row < s.n_pages && (flags[i] & stays) == 0;
      const uint32_t are_free = __ballot_sync(kAllLanes, free);
      const uint32_t before = seen + __popc(are_free & ((1u << lane) - 1));
      if (free && before < n_candidates && !s.is_filling(row))
        lowest.take(uint64_t{stamp[i]} << 32 | key_of_score(score[i]), row);
      seen += __popc(are_free);
    }
  }
  return lowest.of_warp();
}

// kLightest: the page with the least (last score, row), outside the recent window as long as there is one.
__device__ inline uint32_t lightest_victim(const StepRules& rules, const DeviceStream& s, const Room& room) {
  if (!room.is_full(s)) return kNoRow;
  LowestRow outside, any;
#pragma unroll 4
  for (uint32_t row = threadIdx.x % kWarp; row + 1 < s.n_pages; row += kWarp) {
    if ((s.flags[row] & kPageStays) != 0) continue;
    float score = s.last_score[row];
    if (rules.per_step) {
      const uint32_t steps = room.pos + 1 > s.stamp[row] ? room.pos + 1 - s.stamp[row] : 1;
      score = score / static_cast<float>(steps);
    }
    const uint64_t key = key_of_score(score);
    any.take(key, row);
    if (s.end(row) + rules.recent_tokens <= room.pos) outside.take(key, row);
  }
  const uint32_t row = outside.of_warp(), any_row = any.of_warp();
  return row != kNoRow ? row : any_row;
}

// kMarked: the page with the most marks, among equals the least (last score, row); never the last row.
__device__ inline uint32_t marked_victim(const DeviceStream& s, const Room& room) {
  if (!room.is_full(s)) return kNoRow;
  LowestRow lowest;
  for (uint32_t row = threadIdx.x % kWarp; row + 1 < s.n_pages; row += kWarp) {
    if ((s.flags[row] & kPageStays) != 0) continue;
    const uint32_t marks = s.stamp[row] - s.first_pos[row] - 1;
    lowest.take(uint64_t{~marks} << 32 | key_of_score(s.last_score[row]), row);
  }
  return lowest.of_warp();
}

// With slots for prompt pages: whether a prompt page makes room, because more of them are in the pool than may be. Of
// the n_sealed sealed pages of prompts n_resident are there.
__device__ inline bool prompt_gives(const StepRules& rules, uint32_t n_sealed, uint32_t n_resident) {
  return n_resident > min(n_sealed, rules.prompt_slots);
}

// kCold: the page in the pool with the least (stamp, last score, row), outside the newest as long as there is one;
// never the last row. With slots for prompt pages, one of the part that must give as long as there is one.
__device__ inline uint32_t cold_victim(const StepRules& rules, const DeviceStream& s) {
  LowestRow outside[2],
      any[2];  // without slots for prompt pages only the first is used, else by whether it is a prompt's
  uint32_t n_sealed = 0, n_resident = 0;
  const uint32_t end = s.n_pages - min(s.n_pages, 1 + rules.protect.pages);
#pragma unroll 4
  for (uint32_t row = threadIdx.x % kWarp; row + 1 < s.n_pages; row += kWarp) {
    const bool is_prompt = rules.prompt_slots != 0 && (s.flags[row] & kPagePrompt) != 0;
    n_sealed += is_prompt ? 1u : 0u;
    n_resident += is_prompt && s.slots[row] != kNoSlot ? 1u : 0u;
    if (s.slots[row] == kNoSlot || stays_there(rules, row, s.flags[row])) continue;
    const uint64_t key = uint64_t{s.stamp[row]} << 32 | key_of_score(s.last_score[row]);
    any[is_prompt ? 1 : 0].take(key, row);
    if (row < end) outside[is_prompt ? 1 : 0].take(key, row);
  }
  const uint32_t other[2] = {outside[0].of_warp(), any[0].of_warp()};
  if (rules.prompt_slots == 0) return other[0] != kNoRow ? other[0] : other[1];
  const uint32_t prompt[2] = {outside[1].of_warp(), any[1].of_warp()};
  const bool gives = prompt_gives(rules, sum_of_lanes(n_sealed), sum_of_lanes(n_resident));
  for (uint32_t i = 0; i < 2; ++i) {
    const uint32_t first = gives ? prompt[i] : other[i], second = gives ? other[i] : prompt[i];
    if (first != kNoRow || second != kNoRow) return first != kNoRow ? first : second;
  }
  return kNoRow;
}

// kRandom: the page with the least (random order, row); never the last row.
__device__ inline uint32_t random_victim(const StepRules& rules, const DeviceStream& s, const Room& room) {
  if (!room.is_full(s)) return kNoRow;
  LowestRow lowest;
  for (uint32_t row = threadIdx.x % kWarp; row + 1 < s.n_pages; row += kWarp) {
    if ((s.flags[row] & kPageStays) == 0)
      lowest.take(random_order(rules.seed, s.index, room.pos, s.first_pos[row]), row);
  }
  return lowest.of_warp();
}

// Returns kNoRow if no page leaves.
template <VictimRule kRule>
__device__ inline uint32_t victim_of(const StepRules& rules, const DeviceStream& s, const Room& room) {
  uint32_t row = kNoRow;
  if constexpr (kRule == VictimRule::kWindow) {
    row = window_victim(rules, s, room);
  } else if constexpr (kRule == VictimRule::kStalest) {
    row = stalest_victim(rules, s, room);
  } else if constexpr (kRule == VictimRule::kLightest) {
    row = lightest_victim(rules, s, room);
  } else if constexpr (kRule == VictimRule::kMarked) {
    row = marked_victim(s, room);
  } else if constexpr (kRule == VictimRule::kRandom) {
    row = random_victim(rules, s, room);
  } else if constexpr (kRule == VictimRule::kCold) {
    row = s.n_resident + room.opens > s.free_end - s.free_begin ? cold_victim(rules, s) : kNoRow;
  } else {
    static_assert(kRule == VictimRule::kNever);
  }
  return row != kNoRow && s.is_filling(row) ? kNoRow : row;
}

#endif  // __CUDACC__

}  // namespace weir::cuda
