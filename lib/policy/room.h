// Makes room in a session's page tables by a policy's answers: before every prompt chunk, before every decode step and
// after a prompt. This is the only place where pages leave on the host. On a device, cuda/pages/step_begin.cu does the
// same in decode steps.
#pragma once

#include "policy/policy.h"

namespace weir {

// Called for every page before it leaves; for tests.
struct EvictionHook {
  void (*fn)(void* user, uint32_t stream, const StreamView& s, uint32_t row, const RoomArgs& room) = nullptr;
  void* user = nullptr;
};

// Evicts the policy's victims until every stream has free rows for n_tok more tokens, and no page is outside the
// policy's window. In streams of local layers the pages leave that are outside the layer's window, and no others.
void make_room(const Policy& policy, KvCache& kv, uint32_t n_tok, Phase phase, const EvictionHook& hook = {});

// Number of pages that every stream can open at once if every page leaves that may: all but the front rows, those that
// are pinned, and the last one. Streams of local layers always have room for a chunk.
uint32_t room_pages(const Policy& policy, const KvCache& kv);

// Tokens of the next chunk of a prompt of which n_left tokens are left: what the policy wants, but not more than there
// is room for beside the pages that cannot leave. 0: there is no room.
uint32_t next_chunk(const Policy& policy, const KvCache& kv, uint32_t n_left, uint32_t batch_tokens);

}  // namespace weir
