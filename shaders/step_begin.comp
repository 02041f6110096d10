#version 460
// Computes: what precedes the layers of a decode step (step_begin of tests/runtime/host_begin.cpp): pages leave by the
// policy's rules or because a stream's window has passed them, every stream gets room for the token, and the rotation
// of its position is computed.
// Shapes: tables of n_streams streams, cos_sin [n_rotations, stride], of it rope_dim. Launch: a subgroup for each
// stream; the last workgroup that ends adds up.
// Numerics: tables, counters and events are exact; events of different streams are in no order. Angles are exact to
// 2^-32 turns, cosines and sines within 2e-7.
#extension GL_GOOGLE_include_directive : require
#include "common/leave.glsl"
#include "common/left.glsl"
#include "common/pages.glsl"
#include "common/turns.glsl"

layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Arguments { StepBeginPush a; };
layout(push_constant) uniform Push { Arguments p; };

const uint kMoved = 4u;  // rows of a lane that are loaded before any of them is stored

// Counts of the workgroup's streams: pages that left, of them those of prompts and, with recall, those that have a copy
// and those that have none; pages that a window has passed, and pages opened.
shared uint n_evicted, n_prompt_evicted, n_cold, n_lost, n_slid, n_opened;

bool recalls() { return !is_null(p.a.tables.n_resident); }

Stream stream_at(uint index) {
    const uint first = SharedCells(p.a.tables.row_begin).v[index];
    // With windows of single heads a table may have more rows than its stream has slots.
    const uvec2 begin = recalls() ? p.a.tables.row_begin : p.a.tables.slot_begin;
    const uint capacity = SharedCells(begin).v[index + 1u] - SharedCells(begin).v[index];
    return Stream(index, first, capacity, SharedCells(p.a.tables.n_pages).v[index]);
}
uint first_free(uint index) { return SharedCells(p.a.tables.slot_begin).v[index]; }

struct Row {
#define WEIR_ROW(name, type, saved) uint name;
#include "kv/columns.inc"
};
Row load_row(uint at) {
    Row row;
#define WEIR_ROW(name, type, saved) row.name = SharedCells(p.a.tables.name).v[at];
#define WEIR_ROW_IF(name, type, is_there, saved) \
    row.name = is_null(p.a.tables.name) ? 0u : SharedCells(p.a.tables.name).v[at];
#include "kv/columns.inc"
    return row;
}
void store_row(uint at, Row row) {
#define WEIR_ROW(name, type, saved) SharedCells(p.a.tables.name).v[at] = row.name;
#define WEIR_ROW_IF(name, type, is_there, saved) \
    if (!is_null(p.a.tables.name)) SharedCells(p.a.tables.name).v[at] = row.name;
#include "kv/columns.inc"
}
// A page that has one token, which the position `pos` is.
Row new_row(uint slot, uint pos) {
    Row row;
#define WEIR_ROW(name, type, saved) row.name = 0u;
#include "kv/columns.inc"
    row.slots = slot;
    row.first_pos = pos;
    row.len = 1u;
    row.stamp = pos + 1u;
    return row;
}

// Frees the row's slot and moves the rows after it. The caller has one row less then.
void remove_row(Stream s, uint row) {
    if (gl_SubgroupInvocationID == 0u) {
        const uint free = first_free(s.index + 1u) - s.n;
        SharedCells(p.a.tables.free_slots).v[free] = word_of(p.a.tables.slots, s, row);
    }
    for (uint first = row; first + 1u < s.n; first += kMoved * gl_SubgroupSize) {
        Row moved[kMoved];
        const uint own = first + gl_SubgroupInvocationID;
        for (uint i = 0u; i < kMoved; ++i)
            moved[i] = load_row(s.first + min(own + i * gl_SubgroupSize + 1u, s.n - 1u));
        subgroupBarrier();
        for (uint i = 0u; i < kMoved; ++i) {
            const uint to = own + i * gl_SubgroupSize;
            if (to + 1u < s.n) store_row(s.first + to, moved[i]);
        }
        subgroupBarrier();
    }
}

// Counts a page that leaves. Executed by one lane.
void note_leaving(Stream s, uint row, uint pos) {
    record_event(EventsAt(p.a.events, p.a.event_capacity, p.a.n_kv_heads), p.a.state, p.a.tables, s, row, pos);
    atomicAdd(n_evicted, 1u);
    if ((word_of(p.a.tables.flags, s, row) & kFlagPrompt) != 0u) atomicAdd(n_prompt_evicted, 1u);
}

// With recall: the bit that says whether a row's page is in the pool.
void mark_resident(Stream s, uint row, bool is_there) {
    const uint at = s.index * p.a.resident_words + row / 32u, bit = 1u << row % 32u;
    const uint word = SharedCells(p.a.resident).v[at];
    SharedCells(p.a.resident).v[at] = is_there ? word | bit : word & ~bit;
}

// Removes the pages that the rules select. Returns the number of pages that stay.
uint make_room(Stream s, Room room) {
    for (;;) {
        const uint row = victim_of(p.a.rules, p.a.tables, s, room);
        if (row == kNoRow) break;
        if (gl_SubgroupInvocationID == 0u) note_leaving(s, row, room.pos);
        remove_row(s, row);
        --s.n;
        room.opens = max(room.opens, p.a.rules.leave_at_once);
    }
    return s.n;
}

// With recall: pages become cold until there is a slot. A page without a copy is lost, and its digest becomes worse
// than any other. Returns the number of pages in the pool.
uint make_slots(Stream s, uint n_there, Room room) {
    const uint slots_end = first_free(s.index + 1u), n_slots = slots_end - first_free(s.index);
    while (n_there + room.opens > n_slots) {
        const uint row = cold_victim(p.a.rules, p.a.tables, s);
        if (row == kNoRow) break;
        const bool is_lost = Words(p.a.raw_index).v[s.first + row] == kNoCopyWord;
        OutWords digest = OutWords(plus(p.a.digests, s.first + row, 4u * p.a.digest_words));
        for (uint i = gl_SubgroupInvocationID; is_lost && i < p.a.digest_words; i += gl_SubgroupSize)
            digest.v[i] = kTwoNan;
        if (gl_SubgroupInvocationID == 0u) {
            note_leaving(s, row, room.pos);
            if (is_lost) {
                atomicAdd(n_lost, 1u);
            } else {
                atomicAdd(n_cold, 1u);
            }
            SharedCells(p.a.tables.free_slots).v[slots_end - n_there] = word_of(p.a.tables.slots, s, row);
            SharedCells(p.a.tables.slots).v[s.first + row] = kNoSlotWord;
            mark_resident(s, row, false);
        }
        --n_there;
        subgroupBarrier();
    }
    return n_there;
}

// Removes the pages that the stream's window has passed. Returns the number of pages that stay.
uint slide(Stream s, uint window, uint pos) {
    const bool of_layer = is_local(s.index, p.a.n_kv_heads, p.a.global_every);
    const uint front = of_layer ? 0u : p.a.front_pages;
    while (s.n > front && !is_filling(p.a.tables, s, front) && ends_by(p.a.tables, s, front, window, pos + 1u)) {
        if (!of_layer && !is_null(p.a.left.sums)) {
            const uint rank = left_rank(p.a.tables, s.index, p.a.n_kv_heads, p.a.global_every);
            add_left_page(p.a.tables, p.a.left, rank, s, front);
        }
        if (gl_SubgroupInvocationID == 0u) atomicAdd(n_slid, 1u);
        remove_row(s, front);
        --s.n;
    }
    return s.n;
}

// Room for one token. A stream can only be full if the policy's rules are wrong; the host is told then. Executed by one
// lane; returns the pages that are opened.
uint reserve(Stream s, uint n_there, Room room) {
    if (room.opens == 0u) {
        const uint open = s.n - 1u;
        SharedCells(p.a.tables.len).v[s.first + open] = word_of(p.a.tables.len, s, open) + 1u;
        SharedCells(p.a.tables.append_row).v[s.index] = open;
        return 0u;
    }
    const uint slots_end = first_free(s.index + 1u);
    if (s.n >= s.capacity || n_there >= slots_end - first_free(s.index)) {
        atomicAdd(SharedCells(p.a.state).v[kStateWithoutRoom], 1u);
        return 0u;
    }
    const uint slot = SharedCells(p.a.tables.free_slots).v[slots_end - 1u - n_there];
    store_row(s.first + s.n, new_row(slot, room.pos));
    SharedCells(p.a.tables.append_row).v[s.index] = s.n;
    if (recalls()) mark_resident(s, s.n, true);
    atomicAdd(n_opened, 1u);
    return 1u;
}

// The rotations of one position, a pair for each of `n` invocations and every n-th one after it.
void fill_rotation(uint pos, uvec2 cos_sin, uint own, uint n) {
    const uint pairs = p.a.rope_dim / 2u;
    for (uint i = own; i < p.a.n_rotations * pairs; i += n) {
        const uint rotation = i / pairs, at = rotation * p.a.stride + 2u * (i - rotation * pairs);
        // Whole turns fall away: the product modulo 2^64, of which the high word is used, rounded.
        uint high, low;
        umulExtended(pos, Words(p.a.angles).v[2u * i], high, low);
        high += pos * Words(p.a.angles).v[2u * i + 1u];
        const vec2 factors = cos_sin_of(high + (low >> 31)) * p.a.magnitude[rotation];
        Floats(cos_sin).v[at] = factors.x;
        Floats(cos_sin).v[at + 1u] = factors.y;
    }
}

// Where the front rows see the query.
uint in_cache_pos(Stream s, uint pos) {
    if (p.a.in_cache_limit != 0u) return min(pos, p.a.in_cache_limit);
    const uint front = p.a.rules.front_rows;
    return s.n <= front ? pos : pos - (word_of(p.a.tables.first_pos, s, front) - front * kPageRows);
}

void take_token(uint index, Room room) {
    Stream s = stream_at(index);
    const uint before = s.n, there_before = recalls() ? SharedCells(p.a.tables.n_resident).v[index] : s.n;
    const uint window = p.a.has_windows != 0u ? SharedCells(p.a.tables.window).v[index] : 0u;
    uint n_there = there_before;
    if (window != 0u) {
        n_there = s.n = slide(s, window, room.pos);
    } else if (recalls()) {
        n_there = make_slots(s, n_there, room);
    } else {
        n_there = s.n = make_room(s, room);
    }
    if (gl_SubgroupInvocationID == 0u) {
        const uint opened = reserve(s, n_there, room);
        if (s.n + opened != before) SharedCells(p.a.tables.n_pages).v[index] = s.n + opened;
        if (recalls() && n_there + opened != there_before)
            SharedCells(p.a.tables.n_resident).v[index] = n_there + opened;
    }
    subgroupBarrier();
    // It stands for all streams that the rules are about: they hold the same positions.
    if (index == p.a.ruled_stream && !is_null(p.a.cos_sin_sink)) {
        s.n = SharedCells(p.a.tables.n_pages).v[index];
        fill_rotation(in_cache_pos(s, room.pos), p.a.cos_sin_sink, gl_SubgroupInvocationID, gl_SubgroupSize);
    }
}

// What the workgroup's streams changed. The last workgroup knows all. Executed by one invocation of each.
void add_up() {
    add_to_state(p.a.state, kStateResident, wide_signed(n_opened - n_evicted - n_slid));
    add_to_state(p.a.state, kStatePromptEvicted, wide(n_prompt_evicted));
    add_to_state(p.a.state, kStateCold, wide(n_cold));
    add_to_state(p.a.state, kStateLost, wide(n_lost));
    memoryBarrierBuffer();
    if (atomicAdd(SharedCells(p.a.counter).v[0], 1u) != gl_NumWorkGroups.x - 1u) return;
    memoryBarrierBuffer();
    SharedCells state = SharedCells(p.a.state);
    state.v[kStateEvictedBefore] = state.v[kStateEvicted];
    state.v[kStateEvictedBefore + 1u] = state.v[kStateEvicted + 1u];
    const uvec2 resident = uvec2(state.v[kStateResident], state.v[kStateResident + 1u]);
    const uvec2 most = uvec2(state.v[kStateResidentMax], state.v[kStateResidentMax + 1u]);
    if (wide_less(most, resident)) {
        state.v[kStateResidentMax] = resident.x;
        state.v[kStateResidentMax + 1u] = resident.y;
    }
    state.v[kStateAttended] = 0u;
    state.v[kStateAttended + 1u] = 0u;
    SharedCells(p.a.counter).v[0] = 0u;
}

void main() {
    if (gl_LocalInvocationIndex == 0u) n_evicted = n_prompt_evicted = n_cold = n_lost = n_slid = n_opened = 0u;
    barrier();
    const uint pos = SharedCells(p.a.state).v[kStateTokens];
    const Room room = Room(pos, pos % kPageRows == 0u ? 1u : 0u);
    fill_rotation(pos, p.a.cos_sin, gl_WorkGroupID.x * kInvocations + gl_LocalInvocationIndex,
                  gl_NumWorkGroups.x * kInvocations);
    const uint n_together = gl_NumWorkGroups.x * gl_NumSubgroups;
    for (uint s = gl_WorkGroupID.x * gl_NumSubgroups + gl_SubgroupID; s < p.a.n_streams; s += n_together)
        take_token(s, room);
    barrier();
    if (gl_LocalInvocationIndex == 0u) add_up();
}
