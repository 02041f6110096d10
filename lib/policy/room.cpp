// Makes room in the page tables of a session by a policy's answers; see room.h.
#include "policy/room.h"

#include <algorithm>

namespace weir {

void make_room(const Policy& policy, KvCache& kv, uint32_t n_tok, Phase phase, const EvictionHook& hook) {
  RoomArgs room = {phase, kv.n_tokens(), kv.pages_to_open(n_tok), false, 0};
  for (uint32_t s = 0; s < kv.shape().n_streams(); ++s) {
    room.stream = s;
    if (kv.window(s) != 0) {
      kv.slide(s, room.pos);
      continue;
    }
    for (;;) {
      const StreamView stream = kv.stream(s);
      room.crowded = stream.n_resident + room.opens > stream.n_slots;
      const uint32_t row = policy.victim(stream, room);
      // A page that still takes tokens never leaves, nor one that has left, whatever the policy says.
      if (row == Policy::kNone || is_filling(stream, row) || stream.slots[row] == kNoSlot) break;
      if (hook.fn != nullptr) hook.fn(hook.user, s, stream, row, room);
      kv.evict(s, row);
    }
  }
}

uint32_t room_pages(const Policy& policy, const KvCache& kv) {
  uint32_t room = UINT32_MAX;
  for (uint32_t s = 0; s < kv.shape().n_streams(); ++s) {
    if (kv.window(s) == 0) room = std::min(room, room_of(kv.stream(s), policy.n_front_rows()));
  }
  return room;
}

uint32_t next_chunk(const Policy& policy, const KvCache& kv, uint32_t n_left, uint32_t batch_tokens) {
  const uint32_t in_open_page = (kPageTokens - kv.n_tokens() % kPageTokens) % kPageTokens;
  const uint64_t fits = uint64_t{room_pages(policy, kv)} * kPageTokens + in_open_page;
  if (fits == 0) return 0;
  return static_cast<uint32_t>(std::min<uint64_t>(fits, policy.chunk_tokens(kv, n_left, batch_tokens)));
}

}  // namespace weir
