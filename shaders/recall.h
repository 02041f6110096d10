// What the host and the shaders of recall in decode steps both know; shared.h says how.
#ifndef WEIR_SHADERS_RECALL_H
#define WEIR_SHADERS_RECALL_H
#include "step.h"

#ifdef __cplusplus
#include "device/kernels.h"
namespace weir::vulkan {
#endif

// The most rows of a stream: shared memory has two bits for each.
WEIR_SHARED uint kMaxRecallRows = 65536;

// RecallPost, RecallAnswer, RecallHead and RecallEntry: words of each and of its numbers.
WEIR_SHARED uint kPostWords = 4;
WEIR_SHARED uint kPostTicket = 0;
WEIR_SHARED uint kPostLayer = 1;
WEIR_SHARED uint kPostRows = 2;
WEIR_SHARED uint kNoAskedRowWord = 0xFFFFFFFFu;
WEIR_SHARED uint kAnswerWords = 2;
WEIR_SHARED uint kAnswerTicket = 0;
WEIR_SHARED uint kAnswerRefused = 1;
WEIR_SHARED uint kHeadWords = 2;
WEIR_SHARED uint kHeadNow = 0;
WEIR_SHARED uint kHeadEntries = 1;
WEIR_SHARED uint kEntryWords = 4;
WEIR_SHARED uint kEntryRow = 0;
WEIR_SHARED uint kEntrySlot = 1;
WEIR_SHARED uint kEntryCopy = 2;
WEIR_SHARED uint kEntryLeft = 3;

// What a layer's streams bring back, and what they attend (device::PageRecallArgs). Of the tables prompt_score,
// append_row and window are none. raw_index is by row, digests are those of the layer's rows.
struct PageRecallPush {
  TablesAt tables;
  uvec2 state, select, n_select, digests, raw_index, resident, events, posts, rows, heads, entries;
  uint layer, n_layers, n_kv_heads, capacity, most, resident_words, digest_words;
  uint event_capacity;  // a power of two, or 0: nothing is recorded
  uint protect_pages, front_rows, prompt_slots, select_budget, stamps_wanted, attend_wanted, only_lists;
};

// Brings the bytes of what comes back, in pages of page_quads of 16 bytes.
struct PageFetchPush {
  uvec2 pool, state, heads, entries, raw_pages, pages, answers;
  uint layer, n_layers, n_kv_heads, most, page_quads;
};

#ifdef __cplusplus
static_assert(sizeof(RecallPost) == word_at(kPostWords) && offsetof(RecallPost, ticket) == word_at(kPostTicket));
static_assert(offsetof(RecallPost, layer) == word_at(kPostLayer) && offsetof(RecallPost, n) == word_at(kPostRows));
static_assert(kNoAskedRowWord == kNoAskedRow);
static_assert(sizeof(RecallAnswer) == word_at(kAnswerWords));
static_assert(offsetof(RecallAnswer, ticket) == word_at(kAnswerTicket));
static_assert(offsetof(RecallAnswer, is_refused) == word_at(kAnswerRefused));
static_assert(sizeof(device::RecallHead) == word_at(kHeadWords));
static_assert(offsetof(device::RecallHead, now) == word_at(kHeadNow));
static_assert(offsetof(device::RecallHead, n) == word_at(kHeadEntries));
static_assert(sizeof(device::RecallEntry) == word_at(kEntryWords));
static_assert(offsetof(device::RecallEntry, row) == word_at(kEntryRow));
static_assert(offsetof(device::RecallEntry, slot) == word_at(kEntrySlot));
static_assert(offsetof(device::RecallEntry, copy) == word_at(kEntryCopy));
static_assert(offsetof(device::RecallEntry, left) == word_at(kEntryLeft));
static_assert(sizeof(PageRecallPush) == sizeof(TablesAt) + 148);
static_assert(offsetof(PageRecallPush, only_lists) == sizeof(TablesAt) + 144);
static_assert(sizeof(PageFetchPush) == 76 && offsetof(PageFetchPush, page_quads) == 72);
}  // namespace weir::vulkan
#endif
#endif
