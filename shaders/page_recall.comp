#version 460
// Computes: which of the wanted pages of a stream that are cold come back, and over which pages, what its tables say
// then, and the list that attention takes (page_recall of tests/runtime/host_recall.cpp, ties included). The bytes
// follow in page_fetch.comp.
// Shapes: as in PageRecallArgs. Launch: a workgroup for each KV head. An invocation has every kThreads-th row, and
// of them at any time the best candidates: only the one whose candidate is taken looks for the next.
// Numerics: exact; events of different streams are in no order.
// Paper: Chen et al., "ArkVale", NeurIPS 2024, sec. 4; docs/algorithms.md, "ArkVale".
#extension GL_GOOGLE_include_directive : require
#include "common/top_rows.glsl"  // before what includes common/keys.glsl: it has the number of invocations
#include "common/leave.glsl"
#include "common/recall.glsl"

layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Arguments { PageRecallPush a; };
layout(push_constant) uniform Push { Arguments p; };

const uint kRowWords = kMaxRecallRows / 32u;
shared uint wanted_rows[kRowWords], rows_there[kRowWords];  // a bit for each row; `there`: in the pool
shared uint n_cold, n_lost, n_prompt_left, n_asked;

Stream s;
uint kv_head, now;

bool is_wanted(uint row) { return (wanted_rows[row / 32u] >> row % 32u & 1u) != 0u; }
bool is_there(uint row) { return (rows_there[row / 32u] >> row % 32u & 1u) != 0u; }
void want(uint row) { atomicOr(wanted_rows[row / 32u], 1u << row % 32u); }
uint n_words() { return (s.n + 31u) / 32u; }
uint first_bits() { return s.index * p.a.resident_words; }

// Whether a page is always wanted and never leaves.
bool stays(uint row) { return row < p.a.front_rows || !may_leave(p.a.tables, s, row); }

// ------------------------------------------------------------------------------------------------------------- wanted

// The part whose pages compete in find_threshold(), 1: that of prompts.
uint competing;

// Which part a page belongs to, where prompts have slots of their own.
uint part_of(uint row) {
    return p.a.prompt_slots != 0u && (word_of(p.a.tables.flags, s, row) & kFlagPrompt) != 0u ? 1u : 0u;
}
uint score_key(uint row) { return key_of_score(word_of(p.a.tables.last_score, s, row)); }
uint key_of(uint row) {
    if (part_of(row) != competing) return kKeyNever;
    return stays(row) ? kKeyAlways : score_key(row);
}
void take(uint row, uint key, uint place) { want(row); }

// The best `wanted` sealed pages of a part, among them those that stay.
void want_part(uint part, uint wanted) {
    const uint n_sealed = s.n - 1u;
    if (n_sealed == 0u) return;
    competing = part;
    uint own_staying = 0u;
    for (uint row = invocation(); row < n_sealed; row += kThreads) own_staying += key_of(row) == kKeyAlways ? 1u : 0u;
    if (!is_long(n_sealed)) read_keys(0u, n_sealed);
    take_rows(n_sealed, find_threshold(n_sealed, wanted, own_staying));
}

// Pages of prompts that are sealed, and how many of them are in the pool.
struct PromptPages {
    uint n_sealed, n_there;
};

// Marks the best pages of each part, whatever the pages of the other score, and the last page.
PromptPages want_by_parts() {
    const uint n_sealed = s.n - 1u, from = p.a.select_budget - 1u;
    uint n_prompt = 0u, n_there = 0u;
    for (uint row = invocation(); row < n_sealed; row += kThreads) {
        n_prompt += part_of(row);
        n_there += is_there(row) ? part_of(row) : 0u;
    }
    const PromptPages prompt = PromptPages(workgroup_count(n_prompt), workgroup_count(n_there));
    const uint n_slots = SharedCells(p.a.tables.slot_begin).v[s.index + 1u] -
                         SharedCells(p.a.tables.slot_begin).v[s.index];
    const uint answer_slots = n_slots - min(prompt.n_sealed, p.a.prompt_slots);
    const uint wanted_answer = min(min(n_sealed - prompt.n_sealed, from),
                                   answer_slots - min(answer_slots, p.a.protect_pages + 1u));
    want_part(1u, min(prompt.n_sealed, from - wanted_answer));
    want_part(0u, wanted_answer);
    if (invocation() == 0u) want(n_sealed);
    return prompt;
}

void want_listed() {
    const uint n = SharedCells(p.a.n_select).v[kv_head];
    for (uint i = invocation(); i < n; i += kThreads)
        want(SharedCells(p.a.select).v[kv_head * p.a.capacity + i]);
}

// ------------------------------------------------------------------------------------------------------------- choice

// The invocation's row that comes back first: pages that stay do, then those with the best score.
Least first_to_come() {
    Least least = no_row();
    for (uint row = invocation(); row < s.n; row += kThreads) {
        if (!is_wanted(row) || is_there(row) || Words(p.a.raw_index).v[s.first + row] == kNoCopyWord) continue;
        take(least, uvec2(~score_key(row), stays(row) ? 0u : 1u), row);
    }
    return least;
}

// The invocation's row, of that part, that leaves first.
Least first_to_leave(uint part) {
    Least least = no_row();
    const uint end = s.n - min(s.n, 1u + p.a.protect_pages);
    for (uint row = invocation(); row < end; row += kThreads) {
        if (!is_there(row) || is_wanted(row) || stays(row) || part_of(row) != part) continue;
        take(least, uvec2(score_key(row), word_of(p.a.tables.stamp, s, row)), row);
    }
    return least;
}

shared uvec3 min_parts[kMaxParts];

// The row of the least candidate of all invocations, or kNoRow. All of them must call it.
uint workgroup_least_row(Least own) {
    const uint high = subgroupMin(own.key.y);
    const uint low = subgroupMin(own.key.y == high ? own.key.x : 0xFFFFFFFFu);
    const uint row = subgroupMin(own.key.y == high && own.key.x == low ? own.row : kNoRow);
    barrier();  // those of a call before may still be read
    if (gl_SubgroupInvocationID == 0u) min_parts[gl_SubgroupID] = uvec3(low, high, row);
    barrier();
    uvec3 least = min_parts[0];
    for (uint i = 1u; i < gl_NumSubgroups; ++i) {
        const uvec3 other = min_parts[i];
        const bool is_less = wide_less(other.xy, least.xy) || (other.xy == least.xy && other.z < least.z);
        if (is_less) least = other;
    }
    return least.z;
}

// Decides what comes back over what, one page after the other, and writes it to the entries. Returns how many.
uint choose(PromptPages prompt, uint n_free) {
    Least comes = first_to_come(), leaves = first_to_leave(0u), prompt_leaves = no_row();
    if (p.a.prompt_slots != 0u) prompt_leaves = first_to_leave(1u);
    uint n = 0u;
    for (; n < p.a.most; ++n) {
        const uint row = workgroup_least_row(comes);
        if (row == kNoRow) break;
        const uint is_prompt = part_of(row);
        uint left = kNoRow, left_part = 0u;
        if (n >= n_free) {
            left_part = prompt_gives(p.a.prompt_slots, prompt.n_sealed + is_prompt, prompt.n_there + is_prompt);
            left = workgroup_least_row(left_part != 0u ? prompt_leaves : leaves);
            if (left == kNoRow) {
                left_part ^= 1u;
                left = workgroup_least_row(left_part != 0u ? prompt_leaves : leaves);
            }
            if (left == kNoRow) break;
        }
        prompt.n_there += is_prompt - (left != kNoRow ? left_part : 0u);
        if (row % kThreads == invocation()) {
            atomicOr(rows_there[row / 32u], 1u << row % 32u);
            comes = first_to_come();
        }
        if (left != kNoRow && left % kThreads == invocation()) {
            atomicAnd(rows_there[left / 32u], ~(1u << left % 32u));
            if (left_part != 0u) {
                prompt_leaves = first_to_leave(1u);
            } else {
                leaves = first_to_leave(0u);
            }
        }
        // By the invocation that exchanges them.
        if (n % kThreads == invocation()) {
            const uint at = kEntryWords * (s.index * p.a.most + n);
            Cells(p.a.entries).v[at + kEntryRow] = row;
            Cells(p.a.entries).v[at + kEntryLeft] = left;
        }
    }
    return n;
}

// ------------------------------------------------------------------------------------------------------------- tables

// A page leaves the pool.
void leave(uint row) {
    const bool is_lost = Words(p.a.raw_index).v[s.first + row] == kNoCopyWord;
    record_event(EventsAt(p.a.events, p.a.event_capacity, p.a.n_kv_heads), p.a.state, p.a.tables, s, row, now - 1u);
    SharedCells(p.a.tables.slots).v[s.first + row] = kNoSlotWord;
    if ((word_of(p.a.tables.flags, s, row) & kFlagPrompt) != 0u) atomicAdd(n_prompt_left, 1u);
    if (!is_lost) {
        atomicAdd(n_cold, 1u);
        return;
    }
    atomicAdd(n_lost, 1u);
    const uint digest = (kv_head * p.a.capacity + row) * p.a.digest_words;
    for (uint i = 0u; i < p.a.digest_words; ++i) OutWords(p.a.digests).v[digest + i] = kTwoNan;
}

void exchange(uint n, uint n_there) {
    const uint slots_end = SharedCells(p.a.tables.slot_begin).v[s.index + 1u];
    for (uint i = invocation(); i < n; i += kThreads) {
        Cells entries = Cells(p.a.entries);
        const uint at = kEntryWords * (s.index * p.a.most + i);
        const uint row = entries.v[at + kEntryRow], left = entries.v[at + kEntryLeft];
        const uint copy = Words(p.a.raw_index).v[s.first + row];
        const uint slot = left != kNoRow ? word_of(p.a.tables.slots, s, left)
                                         : SharedCells(p.a.tables.free_slots).v[slots_end - 1u - n_there - i];
        if (left != kNoRow) leave(left);
        SharedCells(p.a.tables.slots).v[s.first + row] = slot;
        entries.v[at + kEntrySlot] = slot;
        entries.v[at + kEntryCopy] = copy;
        if (copy == kElsewhereWord) atomicAdd(n_asked, 1u);
    }
}

// Asks the host for the pages whose copies are not raw.
void ask_host(uint n) {
    for (uint i = invocation(); i < n; i += kThreads) {
        Cells entries = Cells(p.a.entries);
        const uint at = kEntryWords * (s.index * p.a.most + i);
        const bool asks = entries.v[at + kEntryCopy] == kElsewhereWord;
        OutWords(p.a.rows).v[kv_head * p.a.most + i] = asks ? entries.v[at + kEntryRow] : kNoAskedRowWord;
    }
    if (invocation() != 0u) return;
    OutWords post = OutWords(p.a.posts);
    post.v[kPostWords * kv_head + kPostTicket] = ticket_of(now, p.a.n_layers, p.a.layer);
    post.v[kPostWords * kv_head + kPostLayer] = p.a.layer;
    post.v[kPostWords * kv_head + kPostRows] = n;
}

// Executed by one invocation.
void count_exchange(uint n, uint n_there) {
    const uint n_left = n_cold + n_lost;
    SharedCells(p.a.tables.n_resident).v[s.index] = n_there + n - n_left;
    add_to_state(p.a.state, kStateRecalled, wide(n));
    add_to_state(p.a.state, kStateCold, wide_signed(n_cold - n));
    add_to_state(p.a.state, kStateLost, wide(n_lost));
    add_to_state(p.a.state, kStatePromptEvicted, wide(n_prompt_left));
    add_to_state(p.a.state, kStateResident, wide(n - n_left));
}

// Returns how many pages come back.
uint bring_back(PromptPages prompt) {
    const uint n_there = SharedCells(p.a.tables.n_resident).v[s.index];
    const uint n_free = SharedCells(p.a.tables.slot_begin).v[s.index + 1u] -
                        SharedCells(p.a.tables.slot_begin).v[s.index] - n_there;
    const uint n = choose(prompt, n_free);
    if (n == 0u) return n;
    exchange(n, n_there);
    barrier();
    for (uint word = invocation(); word < n_words(); word += kThreads)
        SharedCells(p.a.resident).v[first_bits() + word] = rows_there[word];
    if (n_asked != 0u) ask_host(n);
    if (invocation() == 0u) count_exchange(n, n_there);
    return n;
}

// Lists what is attended: of the pages in the pool those that are wanted, or all.
void list_attended() {
    uint done = 0u, side = 0u;
    for (uint first = 0u; first < n_words(); first += kThreads, side ^= 1u) {
        const uint word = first + invocation();
        uint bits = word < n_words() ? rows_there[word] : 0u;
        if (p.a.attend_wanted != 0u && bits != 0u) bits &= wanted_rows[word];
        const uvec2 before = scan(uint(bitCount(bits)), side);
        for (uint at = done + before.x; bits != 0u; bits &= bits - 1u, ++at)
            SharedCells(p.a.select).v[kv_head * p.a.capacity + at] = word * 32u + uint(findLSB(bits));
        done += before.y;
    }
    if (invocation() == 0u) SharedCells(p.a.n_select).v[kv_head] = done;
}

void main() {
    kv_head = gl_WorkGroupID.x;
    const uint index = p.a.layer * p.a.n_kv_heads + kv_head;
    s = Stream(index, SharedCells(p.a.tables.row_begin).v[index], p.a.capacity,
               SharedCells(p.a.tables.n_pages).v[index]);
    if (s.n == 0u) return;  // the same for the whole workgroup
    now = SharedCells(p.a.state).v[kStateTokens] + 1u;
    for (uint word = invocation(); word < n_words(); word += kThreads) {
        wanted_rows[word] = 0u;
        rows_there[word] = SharedCells(p.a.resident).v[first_bits() + word];
    }
    if (invocation() == 0u) n_cold = n_lost = n_prompt_left = n_asked = 0u;
    barrier();
    PromptPages prompt = PromptPages(0u, 0u);
    if (p.a.prompt_slots != 0u) {
        prompt = want_by_parts();
    } else {
        want_listed();
    }
    barrier();
    const bool exchanges = p.a.only_lists == 0u && SharedCells(p.a.state).v[kStateLate] == 0u;
    for (uint row = invocation(); exchanges && p.a.stamps_wanted != 0u && row < s.n; row += kThreads) {
        if (is_wanted(row)) SharedCells(p.a.tables.stamp).v[s.first + row] = now;
    }
    // A step that is repeated has brought its pages back.
    SharedCells head = SharedCells(p.a.heads);
    const uint at = kHeadWords * index, last = head.v[at + kHeadNow];
    uint n = 0u;
    if (exchanges && last != now) n = bring_back(prompt);
    barrier();  // all have read the head
    if (invocation() == 0u) {
        head.v[at + kHeadNow] = exchanges ? now : last;
        head.v[at + kHeadEntries] = n;
    }
    list_attended();
}
