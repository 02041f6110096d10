// What is said of pages that leave: the numbers of a step's state, which several workgroups change, and events.
#ifndef WEIR_LEAVE_GLSL
#define WEIR_LEAVE_GLSL
#include "common/victim.glsl"

const uint kTwoNan = 0x7FC07FC0u;  // in bf16

// Adds to a number of 64 bits, which nobody reads before all have added.
void add_to_state(uvec2 state, uint at, uvec2 change) {
    if ((change.x | change.y) == 0u) return;
    const uint low = atomicAdd(SharedCells(state).v[at], change.x);
    uint carry;
    uaddCarry(low, change.x, carry);
    atomicAdd(SharedCells(state).v[at + 1u], change.y + carry);
}

// A difference of two counts as a change of a number.
uvec2 wide_signed(uint change) { return uvec2(change, int(change) < 0 ? 0xFFFFFFFFu : 0u); }

// Where events go, from which streams.
struct EventsAt {
    uvec2 events;
    uint capacity, n_kv_heads;
};

// Counts a page that leaves. Events are numbered from the pages that were evicted before, a number that nobody changes
// meanwhile. Executed by one lane.
void record_event(EventsAt to, uvec2 state, TablesAt t, Stream s, uint row, uint pos) {
    const uvec2 before = uvec2(SharedCells(state).v[kStateEvictedBefore],
                               SharedCells(state).v[kStateEvictedBefore + 1u]);
    const uint low = atomicAdd(SharedCells(state).v[kStateEvicted], 1u), number = low - before.x;
    if (low == 0xFFFFFFFFu) atomicAdd(SharedCells(state).v[kStateEvicted + 1u], 1u);
    if (number >= to.capacity) return;
    const uvec2 index = wide_sum(before, wide(number));
    const uint at = kEventWords * (index.x & (to.capacity - 1u));
    OutWords events = OutWords(to.events);
    events.v[at + kEventIndex] = index.x;
    events.v[at + kEventIndex + 1u] = index.y;
    events.v[at + kEventLayer] = s.index / to.n_kv_heads;
    events.v[at + kEventKvHead] = s.index % to.n_kv_heads;
    events.v[at + kEventFirstPos] = word_of(t.first_pos, s, row);
    events.v[at + kEventTokens] = word_of(t.len, s, row);
    events.v[at + kEventFlags] = word_of(t.flags, s, row);
    events.v[at + kEventLeftAt] = pos;
}

#endif
