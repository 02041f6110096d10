// Makes room in the page tables of a session by a policy's answers; see room.h.
#include "policy/room.h"

#include <algorithm>

namespace weir {
namespace {

constexpr uint32_t kNone = Policy::kNone;

// Which of two streams a page of the one pool leaves: for an answer the one whose page was attended the longest ago, of
// equals in the last layer, which comes last in the next step, too; for a prompt the one with the most pages.
bool leaves_before(const KvCache& kv, Phase phase, uint32_t a, uint32_t b) {
  const StreamView x = kv.stream(a), y = kv.stream(b);
  const uint32_t row = kv.pool_rows()[a], other = kv.pool_rows()[b];
  if (phase != Phase::kDecode && x.n_resident != y.n_resident) return x.n_resident > y.n_resident;
  if (x.stamp[row] != y.stamp[other]) return x.stamp[row] < y.stamp[other];
  const uint32_t layer = a / kv.shape().n_kv_heads, other_layer = b / kv.shape().n_kv_heads;
  if (layer != other_layer) return layer > other_layer;
  return score_of(x, row) != score_of(y, other) ? score_of(x, row) < score_of(y, other) : a < b;
}

// Evicts pages of any streams until all have room. False: there is none that may leave.
bool evict_from_pool(const Policy& policy, KvCache& kv, RoomArgs room, const EvictionHook& hook) {
  const uint32_t n = kv.shape().n_streams(), first = room.stream;
  const auto ask = [&](uint32_t s) {
    room.stream = s;
    const StreamView stream = kv.stream(s);
    const uint32_t row = policy.victim(stream, room);
    const bool may = row != kNone && !is_filling(stream, row) && stream.slots[row] != kNoSlot;
    kv.pool_rows()[s] = may ? row : kNone;
  };
  for (uint32_t s = 0; s < n; ++s) kv.is_in_pool(s) ? ask(s) : void(kv.pool_rows()[s] = kNone);
  while (!kv.can_open(first, room.opens)) {
    uint32_t from = kNone;
    for (uint32_t s = 0; s < n; ++s) {
      if (kv.pool_rows()[s] != kNone && (from == kNone || leaves_before(kv, room.phase, s, from))) from = s;
    }
    if (from == kNone) return false;
    room.stream = from;
    if (hook.fn != nullptr) hook.fn(hook.user, from, kv.stream(from), kv.pool_rows()[from], room);
    kv.evict(from, kv.pool_rows()[from]);
    ask(from);
  }
  return true;
}

}  // namespace

void make_room(const Policy& policy, KvCache& kv, uint32_t n_tok, Phase phase, const EvictionHook& hook) {
  const uint32_t at_once = phase == Phase::kDecode ? policy.step_rules().leave_at_once : 0;
  for (uint32_t s = 0; s < kv.shape().n_streams(); ++s) {
    RoomArgs room = {phase, kv.n_tokens(), kv.pages_to_open(n_tok), false, s};
    if (kv.window(s) != 0) {
      kv.slide(s, room.pos);
      continue;
    }
    for (;;) {
      const StreamView stream = kv.stream(s);
      room.is_full = !kv.can_open(s, room.opens);
      if (kv.is_in_pool(s)) {
        if (!room.is_full || !evict_from_pool(policy, kv, room, hook)) break;
        continue;
      }
      const uint32_t row = policy.victim(stream, room);
      // A page that still takes tokens never leaves, nor one that has left, whatever the policy says.
      if (row == Policy::kNone || is_filling(stream, row) || stream.slots[row] == kNoSlot) break;
      if (hook.fn != nullptr) hook.fn(hook.user, s, stream, row, room);
      kv.evict(s, row);
      room.opens = std::max(room.opens, at_once);
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
