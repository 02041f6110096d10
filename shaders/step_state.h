// The state of a step (lib/kv/step_state.h) in words of 32 bits. Numbers of 64 bits have the low word first.
#ifndef WEIR_SHADERS_STEP_STATE_H
#define WEIR_SHADERS_STEP_STATE_H
#include "shared.h"

#ifdef __cplusplus
#include "kv/step_state.h"
namespace weir::vulkan {
#endif

WEIR_SHARED uint kStateNextToken = 0;
WEIR_SHARED uint kStateTokens = 1;
WEIR_SHARED uint kStateEvicted = 2;
WEIR_SHARED uint kStateEvictedBefore = 4;
WEIR_SHARED uint kStatePromptEvicted = 6;
WEIR_SHARED uint kStateResident = 8;
WEIR_SHARED uint kStateResidentMax = 10;
WEIR_SHARED uint kStateAttended = 12;
WEIR_SHARED uint kStateWithoutRoom = 14;
WEIR_SHARED uint kStateLate = 15;
WEIR_SHARED uint kStateCold = 16;
WEIR_SHARED uint kStateLost = 18;
WEIR_SHARED uint kStateRecalled = 20;
WEIR_SHARED uint kStateRecurrent = 22;
WEIR_SHARED uint kStateWords = 24;

#ifdef __cplusplus
constexpr size_t word_at(uint word) { return word * sizeof(uint32_t); }
static_assert(offsetof(StepState, next_token) == word_at(kStateNextToken));
static_assert(offsetof(StepState, n_tokens) == word_at(kStateTokens));
static_assert(offsetof(StepState, pages_evicted) == word_at(kStateEvicted));
static_assert(offsetof(StepState, pages_evicted_before) == word_at(kStateEvictedBefore));
static_assert(offsetof(StepState, prompt_pages_evicted) == word_at(kStatePromptEvicted));
static_assert(offsetof(StepState, pages_resident) == word_at(kStateResident));
static_assert(offsetof(StepState, pages_resident_max) == word_at(kStateResidentMax));
static_assert(offsetof(StepState, pages_attended) == word_at(kStateAttended));
static_assert(offsetof(StepState, n_without_room) == word_at(kStateWithoutRoom));
static_assert(offsetof(StepState, is_late) == word_at(kStateLate) && sizeof(StepState) == word_at(kStateWords));
static_assert(offsetof(StepState, pages_cold) == word_at(kStateCold));
static_assert(offsetof(StepState, pages_lost) == word_at(kStateLost));
static_assert(offsetof(StepState, pages_recalled) == word_at(kStateRecalled));
static_assert(offsetof(StepState, recurrent) == word_at(kStateRecurrent));
static_assert(sizeof(StepState::pages_evicted) == word_at(2) && sizeof(StepState::n_without_room) == word_at(1));
}  // namespace weir::vulkan
#endif
#endif
