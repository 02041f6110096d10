// Recall with slots for prompt pages (StepRules::prompt_slots): each part wants pages of its own, and the part that
// holds more than its slots makes room. As lib/policy/rules.cpp does it on the host, ties included.
#pragma once

#include "cuda/pages/page_exchange.cuh"

namespace weir::cuda {

#ifdef __CUDACC__

struct PartsScratch {
  TopKeysScratch<8> top;
  uint32_t warps[kMaxBlockWarps];
};

// Sealed pages of prompts, and how many of these are in the pool.
struct PromptPages {
  uint32_t n_sealed, n_resident;
};

// Marks the best pages of one part, `wanted` of them, and those of it that stay. Executed by the block.
__device__ inline void want_part(const StepRules& rules, const DeviceStream& s, bool is_prompt, uint32_t wanted,
                                 const RecallLists& lists, PartsScratch& scratch) {
  const uint32_t n = s.n_pages - 1;
  const auto is_in = [&](uint32_t row) { return ((s.flags[row] & kPagePrompt) != 0) == is_prompt; };
  const auto key_of = [&](uint32_t row) {
    if (!is_in(row)) return kKeyNever;
    return stays_there(rules, row, s.flags[row]) ? kKeyAlways : key_of_score(s.last_score[row]);
  };
  uint32_t n_all = 0, n_staying = 0;
  for (uint32_t row = threadIdx.x; row < n; row += kExchangeThreads) {
    const uint32_t key = key_of(row);
    n_all += key != kKeyNever ? 1u : 0u;
    n_staying += key == kKeyAlways ? 1u : 0u;
  }
  n_all = block_sum(n_all, scratch.warps);
  n_staying = block_sum(n_staying, scratch.warps);
  const uint32_t n_others = n_all - n_staying, n_best = min(n_others, wanted - min(wanted, n_staying));
  Threshold threshold = {kKeyNever, 0};  // all
  if (n_best == 0) {
    threshold = {kKeyAlways - 1, 0};
  } else if (n_best < n_others) {
    threshold = find_threshold(n, n_best, key_of, scratch.top);
  }
  take_rows(n, threshold, key_of, scratch.top.warps,
            [&](uint32_t row, uint32_t) { atomicOr(&lists.is_wanted[row / 32], 1u << row % 32); });
  __syncthreads();
}

// Marks what a step wants: the best pages of each part, whatever the pages of the other score, and the last page.
// Executed by the block.
__device__ inline PromptPages want_by_parts(const PageRecallArgs& a, const DeviceStream& s, const RecallLists& lists,
                                            PartsScratch& scratch) {
  const uint32_t n_sealed = s.n_pages - 1, from = a.rules.select_budget - 1, protect = a.rules.protect.pages;
  const auto n_slots = static_cast<uint32_t>(s.free_end - s.free_begin);
  PromptPages prompt = {0, 0};
  for (uint32_t row = threadIdx.x; row < n_sealed; row += kExchangeThreads) {
    const bool is_prompt = (s.flags[row] & kPagePrompt) != 0;
    prompt.n_sealed += is_prompt ? 1u : 0u;
    prompt.n_resident += is_prompt && s.slots[row] != kNoSlot ? 1u : 0u;
  }
  prompt.n_sealed = block_sum(prompt.n_sealed, scratch.warps);
  prompt.n_resident = block_sum(prompt.n_resident, scratch.warps);
  const uint32_t answer_slots = n_slots - min(prompt.n_sealed, a.rules.prompt_slots);
  const uint32_t wanted_answer =
      min(min(n_sealed - prompt.n_sealed, from), answer_slots - min(answer_slots, protect + 1));
  want_part(a.rules, s, true, min(prompt.n_sealed, from - wanted_answer), lists, scratch);
  want_part(a.rules, s, false, wanted_answer, lists, scratch);
  if (threadIdx.x == 0) atomicOr(&lists.is_wanted[n_sealed / 32], 1u << n_sealed % 32);
  __syncthreads();
  return prompt;
}

// The index of the first candidate of a prompt, or not of one, that has not left yet; or kNoRow. Executed by a warp.
__device__ inline uint32_t first_to_leave(const DeviceStream& s, const Candidate* list, uint32_t n, bool is_prompt) {
  LowestRow lowest;  // of rows; the index follows
  for (uint32_t i = threadIdx.x % kWarp; i < n; i += kWarp) {
    const Candidate c = list[i];
    if (c.key == ~uint64_t{0} || ((s.flags[c.row] & kPagePrompt) != 0) != is_prompt) continue;
    if (lowest.row == kNoRow || c.key < lowest.key || (c.key == lowest.key && c.row < lowest.row))
      lowest.key = c.key, lowest.row = c.row;
  }
  const uint32_t row = lowest.of_warp();
  uint32_t at = kNoRow;
  for (uint32_t i = threadIdx.x % kWarp; i < n && row != kNoRow; i += kWarp) {
    if (list[i].row == row) at = i;
  }
#pragma unroll
  for (uint32_t i = kWarp / 2; i > 0; i /= 2) at = min(at, __shfl_xor_sync(kAllLanes, at, i));
  return at;
}

// Decides what comes back over what, one page after the other: which part makes room changes with each. Writes entries
// [counts.n_back]. Executed by the block, which has synchronised after collect_wanted.
__device__ inline void choose_by_parts(const PageRecallArgs& a, const DeviceStream& s, PromptPages prompt,
                                       const RecallLists& lists, RecallCounts& counts, RecallEntry* entries) {
  collect_leaving(a, s, lists, counts);
  __syncthreads();
  if (threadIdx.x >= kWarp) return;
  const uint32_t lane = threadIdx.x, n_free = free_slots_of(s), most = min(counts.n_wanted, a.host.most);
  front_least(lists.wanted, counts.n_wanted, most);
  uint32_t i = 0;
  for (; i < most; ++i) {
    const Candidate back = lists.wanted[i];
    const uint32_t comes = (s.flags[back.row] & kPagePrompt) != 0 ? 1 : 0;
    RecallEntry entry = {back.row, 0, back.copy, kNoRow};
    if (i < n_free) {
      entry.slot = a.tables.free_slots[s.free_end - 1 - (s.n_resident + i)];
    } else {
      const bool gives = prompt_gives(a.rules, prompt.n_sealed + comes, prompt.n_resident + comes);
      uint32_t at = first_to_leave(s, lists.leaving, counts.n_leaving, gives);
      if (at == kNoRow) at = first_to_leave(s, lists.leaving, counts.n_leaving, !gives);
      if (at == kNoRow) break;
      entry.left = lists.leaving[at].row;
      entry.slot = s.slots[entry.left];
      prompt.n_resident -= (s.flags[entry.left] & kPagePrompt) != 0 ? 1 : 0;
      __syncwarp();
      if (lane == 0) lists.leaving[at].key = ~uint64_t{0};
      __syncwarp();
    }
    prompt.n_resident += comes;
    if (lane == 0) entries[i] = entry;
  }
  if (lane == 0) counts.n_back = i;
}

#endif  // __CUDACC__

}  // namespace weir::cuda
