// What the host and the shaders of decode steps both know: page tables, the state of a step, events, and the arguments
// of kernels over them. See shared.h; arguments of more than 128 bytes reach shaders in memory.
#ifndef WEIR_SHADERS_STEP_H
#define WEIR_SHADERS_STEP_H
#include "attn.h"
#include "shared.h"
#include "step_state.h"

#ifdef __cplusplus
#include "kv/page_events.h"
#include "kv/tables.h"
#include "ops/step_rules.h"
namespace weir::vulkan {
#endif

// Flags of pages.
WEIR_SHARED uint kFlagPrompt = 2;
WEIR_SHARED uint kFlagsStay = 5;

// What is known of a page's copy unless it is the number of a raw slot: it is elsewhere, or there is none.
WEIR_SHARED uint kElsewhereWord = 0xFFFFFFFEu;
WEIR_SHARED uint kNoCopyWord = 0xFFFFFFFFu;

// KvTables: arrays of words. What may be null there may be none here.
WEIR_SHARED uint kTableAddresses = 0
#define WEIR_ROW(name, type, saved) +1
#define WEIR_STREAM(name, is_there) +1
#define WEIR_SLOT(name) +1
#define WEIR_BOUND(name, n) +1
#include "kv/columns.inc"
    ;
struct TablesAt {
#define WEIR_ROW(name, type, saved) uvec2 name;
#define WEIR_STREAM(name, is_there) uvec2 name;
#define WEIR_SLOT(name) uvec2 name;
#define WEIR_BOUND(name, n) uvec2 name;
#include "kv/columns.inc"
};

// PageEvent: words of an event and of its numbers.
WEIR_SHARED uint kEventWords = 8;
WEIR_SHARED uint kEventIndex = 0;  // 64 bits
WEIR_SHARED uint kEventLayer = 2;
WEIR_SHARED uint kEventKvHead = 3;
WEIR_SHARED uint kEventFirstPos = 4;
WEIR_SHARED uint kEventTokens = 5;
WEIR_SHARED uint kEventFlags = 6;
WEIR_SHARED uint kEventLeftAt = 7;

// What of StepRules decides which page leaves a stream.
struct VictimRules {
  uint victim, front_rows, window_tokens, protect_pages;
  float protect_share;
  uint decode_pages, all_pages, whole_prompt_pages, recent_tokens, per_step, seed, prompt_slots, by_gap, leave_at_once;
};

// Sums of what has left windows (device::LeftAt): sums of two words, values [n, 2, head_dim]. Without sums nothing is
// added.
struct LeftAt {
  uvec2 sums, values, pool;
  uint head_dim;
  uint reserved;  // it is a multiple of 8 bytes
};

// Before a prompt chunk (device::AddLeftArgs).
struct AddLeftPush {
  TablesAt tables;
  LeftAt left;
  uint n_streams, n_kv_heads, front_pages, global_every, n_tokens;
};

// The beginning of a decode step (device::StepBeginArgs). angles [n_rotations, rope_dim / 2]: turns per position, of
// 2^64 parts, two words with the low one first. cos_sin_sink may be none. With recall tables.n_resident is there, and
// so are raw_index, by row, resident [n_streams, resident_words] and, by row, digests.
WEIR_SHARED uint kStepRotations = 2;
struct StepBeginPush {
  TablesAt tables;
  uvec2 state, angles, cos_sin, cos_sin_sink, counter, events, raw_index, resident, digests;
  LeftAt left;
  VictimRules rules;
  uint n_streams, n_kv_heads, ruled_stream, has_windows;
  uint front_pages, global_every;  // as in KvTables
  uint event_capacity;             // a power of two, or 0: nothing is recorded
  uint in_cache_limit;
  uint rope_dim, n_rotations, stride;
  uint resident_words, digest_words;
  float magnitude[kStepRotations];
};

#ifdef __cplusplus
static_assert(kNoSlotWord == kNoSlot && kNoRow == weir::kNoRow);
static_assert(kElsewhereWord == kCopyElsewhere && kNoCopyWord == kNoCopy);
static_assert(kPageRows == kPageTokens && kFlagPrompt == kPagePrompt && kFlagsStay == kPageStays);
static_assert(sizeof(TablesAt) == kTableAddresses * sizeof(uvec2));

static_assert(sizeof(PageEvent) == word_at(kEventWords) && offsetof(PageEvent, index) == word_at(kEventIndex));
static_assert(offsetof(PageEvent, layer) == word_at(kEventLayer));
static_assert(offsetof(PageEvent, kv_head) == word_at(kEventKvHead));
static_assert(offsetof(PageEvent, first_pos) == word_at(kEventFirstPos));
static_assert(offsetof(PageEvent, n_tokens) == word_at(kEventTokens));
static_assert(offsetof(PageEvent, flags) == word_at(kEventFlags));
static_assert(offsetof(PageEvent, left_at) == word_at(kEventLeftAt));

static_assert(kStepRotations == kMaxRotations);
static_assert(sizeof(StepBeginPush) == sizeof(TablesAt) + 220);
static_assert(offsetof(StepBeginPush, left) == sizeof(TablesAt) + 72);
static_assert(offsetof(StepBeginPush, rules) == sizeof(TablesAt) + 104);
static_assert(offsetof(StepBeginPush, n_streams) == sizeof(TablesAt) + 160);
static_assert(offsetof(StepBeginPush, magnitude) == sizeof(TablesAt) + 212);
}  // namespace weir::vulkan
#endif
#endif
