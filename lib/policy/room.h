// How a policy's answers make room in a session's tables, before every prompt chunk, before every decode step and after a
// prompt: the one place where pages leave on the host. On a device cuda/pages/step_begin.cu does the same in decode steps.
#pragma once

#include "policy/policy.h"

namespace weir {

// Told of a page before it leaves; for tests.
struct EvictionHook {
  void (*fn)(void* user, uint32_t stream, const StreamView& s, uint32_t row, const RoomArgs& room) = nullptr;
  void* user = nullptr;
};

// Lets the policy's victims go until every stream has rows for n_tok more tokens and no page has outlived the policy's
// window.
void make_room(const Policy& policy, KvCache& kv, uint32_t n_tok, Phase phase, const EvictionHook& hook = {});

// Pages that every stream can open at once if all leaves that may.
uint32_t room_pages(const Policy& policy, const KvCache& kv);

// Tokens of the next chunk of a prompt of which n_left are left: what the policy wants, but not more than pages that stay
// leave room for. 0: they leave none.
uint32_t next_chunk(const Policy& policy, const KvCache& kv, uint32_t n_left, uint32_t batch_tokens);

}  // namespace weir
