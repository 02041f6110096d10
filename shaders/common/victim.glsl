// Which page leaves a stream: choose_victim of lib/policy/rules.h, ties included. Executed by one whole subgroup,
// whose lanes have a row each, and so many rows further the next.
#ifndef WEIR_VICTIM_GLSL
#define WEIR_VICTIM_GLSL
#include "common/memory.glsl"
#include "common/random_order.glsl"
#include "common/subgroup.glsl"
#include "common/wide.glsl"
#include "step.h"
#if WEIR_VICTIM_RULES != 7
#error "victim_of: other rules"
#endif

// The page table of one stream.
struct Stream {
    uint index, first, capacity;  // `first`: of its rows among those of all streams
    uint n;                       // rows in use
};

// What the next token needs: `opens` is 1 if it begins a page.
struct Room {
    uint pos, opens;
};

uint word_of(uvec2 table, Stream s, uint row) { return SharedCells(table).v[s.first + row]; }
bool is_full(Stream s, Room room) { return s.n + room.opens > s.capacity; }
bool is_filling(TablesAt t, Stream s, uint row) {
    return row + 1u == s.n && word_of(t.len, s, row) < kPageRows;
}
bool may_leave(TablesAt t, Stream s, uint row) { return (word_of(t.flags, s, row) & kFlagsStay) == 0u; }

// Whether the position after the row's last token and so many more are at most `limit`, without wrapping.
bool ends_by(TablesAt t, Stream s, uint row, uint more, uint limit) {
    uint carry[2];
    uint end = uaddCarry(word_of(t.first_pos, s, row), word_of(t.len, s, row), carry[0]);
    end = uaddCarry(end, more, carry[1]);
    return (carry[0] | carry[1]) == 0u && end <= limit;
}

// ---------------------------------------------------------------------------------------------------- keys of scores

// A key in the order of the scores, from their bits. Both zeros have one key; NaN counts as -inf.
uint score_without_nan(uint bits) { return (bits & 0x7FFFFFFFu) > 0x7F800000u ? 0xFF800000u : bits; }
uint key_of_score(uint bits) {
    bits = score_without_nan(bits);
    if (bits == 0x80000000u) bits = 0u;
    return (bits & 0x80000000u) != 0u ? ~bits : bits | 0x80000000u;
}

// score / n, n > 0 being rounded to a float first, rounded to the nearest number as the processor does it: drivers may
// divide with larger errors and flush small numbers, and equal quotients would become unequal.
uint quotient_of_score(uint bits, uint n) {
    bits = score_without_nan(bits);
    const uint sign = bits & 0x80000000u, divisor = floatBitsToUint(float(n));
    uint mantissa = bits & 0x7FFFFFu;
    int exponent = int(bits >> 23 & 0xFFu);
    if (exponent == 255 || (bits & 0x7FFFFFFFu) == 0u) return bits;
    if (exponent == 0) {
        const int shift = 23 - findMSB(mantissa);
        mantissa <<= shift;
        exponent = 1 - shift;
    }
    mantissa |= 0x800000u;
    const uint by = (divisor & 0x7FFFFFu) | 0x800000u;
    exponent -= int(divisor >> 23) - 127;
    if (mantissa < by) {
        mantissa <<= 1;
        --exponent;
    }
    // 24 bits of the quotient and one more; what is left then only matters if it is not 0.
    uint quotient = 0u;
    for (uint i = 0u; i < 25u; ++i) {
        const bool fits = mantissa >= by;
        quotient = quotient << 1 | (fits ? 1u : 0u);
        mantissa = (fits ? mantissa - by : mantissa) << 1;
    }
    const uint shift = uint(clamp(2 - exponent, 1, 31));  // below exponent 1 numbers lose bits
    const uint kept = quotient >> shift, half_way = 1u << (shift - 1u), lost = quotient & ((1u << shift) - 1u);
    const bool up = lost > half_way || (lost == half_way && (mantissa != 0u || (kept & 1u) != 0u));
    return sign | ((exponent > 0 ? uint(exponent - 1) << 23 : 0u) + kept + (up ? 1u : 0u));
}

// --------------------------------------------------------------------------------------------------------------- rules

// The row with the least key; of equal keys the lowest row.
struct Least {
    uvec2 key;
    uint row;
};
Least no_row() { return Least(uvec2(0xFFFFFFFFu), kNoRow); }

// A lane must take its rows in ascending order.
void take(inout Least least, uvec2 key, uint row) {
    if (least.row == kNoRow || wide_less(key, least.key)) least = Least(key, row);
}
uint min_row(Least own) {
    const uint high = subgroupMin(own.key.y);
    const uint low = subgroupMin(own.key.y == high ? own.key.x : 0xFFFFFFFFu);
    return subgroupMin(own.key.y == high && own.key.x == low ? own.row : kNoRow);
}

// The first page after the front rows that may leave, if the stream is full or the window has passed the page.
uint window_victim(VictimRules rules, TablesAt t, Stream s, Room room) {
    const bool full = is_full(s, room);
    if (!full && rules.window_tokens == 0u) return kNoRow;
    uint row = kNoRow;
    for (uint first = rules.front_rows; first < s.n && row == kNoRow; first += gl_SubgroupSize) {
        const uint at = first + gl_SubgroupInvocationID;
        const bool leaves = at < s.n && may_leave(t, s, at);
        row = subgroupMin(leaves ? at : kNoRow);
    }
    if (row == kNoRow || full) return row;
    return row + 1u < s.n && ends_by(t, s, row, rules.window_tokens, room.pos + 1u) ? row : kNoRow;
}

// protected_pages of lib/ops/step_rules.h.
uint protected_pages(VictimRules rules, uint n_free) {
    if (n_free == 0u) return 0u;
    const uint wanted = max(rules.protect_pages, uint(rules.protect_share * float(n_free)));
    return max(min(wanted, n_free - max(1u, n_free / 4u)), n_free > 1u ? 1u : 0u);
}

// The least (stamp, score) of the pages that are not protected as recent. Pages of the answer may have a budget of
// their own (decode_pages); then pages of the prompt leave only when the stream is full.
uint stalest_victim(VictimRules rules, TablesAt t, Stream s, Room room) {
    const bool full = is_full(s, room);
    if (!full && (rules.decode_pages == 0u || s.n + room.opens <= rules.decode_pages)) return kNoRow;
    const uint stays = full ? kFlagsStay : kFlagsStay | kFlagPrompt;
    uint n_prompt = 0u, n_free = 0u;
    for (uint row = gl_SubgroupInvocationID; row < s.n; row += gl_SubgroupSize) {
        const uint flags = word_of(t.flags, s, row);
        n_prompt += (flags & kFlagPrompt) != 0u ? 1u : 0u;
        n_free += (flags & stays) == 0u ? 1u : 0u;
    }
    n_prompt = subgroupAdd(n_prompt);
    n_free = subgroupAdd(n_free);
    const uint most = n_prompt <= rules.whole_prompt_pages ? rules.all_pages - n_prompt : rules.decode_pages;
    if (!full && s.n + room.opens - n_prompt <= most) return kNoRow;
    const uint n_candidates = n_free - protected_pages(rules, n_free);
    Least least = no_row();
    uint n_before = 0u;
    for (uint first = 0u; first < s.n && n_before < n_candidates; first += gl_SubgroupSize) {
        const uint row = first + gl_SubgroupInvocationID;
        const bool is_free = row < s.n && (word_of(t.flags, s, row) & stays) == 0u;
        const uint number = n_before + subgroupExclusiveAdd(is_free ? 1u : 0u);
        if (is_free && number < n_candidates && !is_filling(t, s, row)) {
            const uint gap = rules.by_gap != 0u ? word_of(t.last_gap, s, row) : 0u;
            take(least, uvec2(key_of_score(word_of(t.last_score, s, row)), word_of(t.stamp, s, row) + gap), row);
        }
        n_before += subgroupAdd(is_free ? 1u : 0u);
    }
    return min_row(least);
}

// The least score outside the recent window as long as there is a page, never the last row.
uint lightest_victim(VictimRules rules, TablesAt t, Stream s, Room room) {
    Least old = no_row(), any = no_row();
    for (uint row = gl_SubgroupInvocationID; row + 1u < s.n; row += gl_SubgroupSize) {
        if (!may_leave(t, s, row)) continue;
        uint score = word_of(t.last_score, s, row);
        if (rules.per_step != 0u) {
            const uint now = room.pos + 1u, stamp = word_of(t.stamp, s, row);
            score = quotient_of_score(score, now > stamp ? now - stamp : 1u);
        }
        const uvec2 key = wide(key_of_score(score));
        take(any, key, row);
        if (ends_by(t, s, row, rules.recent_tokens, room.pos)) take(old, key, row);
    }
    const uint old_row = min_row(old), any_row = min_row(any);
    return old_row != kNoRow ? old_row : any_row;
}

// The most marks, then the least score; never the last row.
uint marked_victim(TablesAt t, Stream s) {
    Least least = no_row();
    for (uint row = gl_SubgroupInvocationID; row + 1u < s.n; row += gl_SubgroupSize) {
        if (!may_leave(t, s, row)) continue;
        const uint marks = word_of(t.stamp, s, row) - word_of(t.first_pos, s, row) - 1u;
        take(least, uvec2(key_of_score(word_of(t.last_score, s, row)), ~marks), row);
    }
    return min_row(least);
}

// The least random_order; never the last row.
uint random_victim(VictimRules rules, TablesAt t, Stream s, Room room) {
    Least least = no_row();
    for (uint row = gl_SubgroupInvocationID; row + 1u < s.n; row += gl_SubgroupSize) {
        if (!may_leave(t, s, row)) continue;
        take(least, random_order(rules.seed, s.index, room.pos, word_of(t.first_pos, s, row)), row);
    }
    return min_row(least);
}

// Where prompts have slots of their own: whether (1) a page of theirs makes room, because more of them are in the pool
// than may be.
uint prompt_gives(uint prompt_slots, uint n_sealed, uint n_there) {
    return n_there > min(n_sealed, prompt_slots) ? 1u : 0u;
}

// With recall: the least (stamp, score) in the pool, outside the newest pages as long as there is one; never the last
// row. Where prompts have slots of their own, one of the part that makes room as long as there is one.
uint cold_victim(VictimRules rules, TablesAt t, Stream s) {
    Least outside[2] = Least[2](no_row(), no_row()), any[2] = outside;  // without such slots the first alone
    uint n_sealed = 0u, n_there = 0u;
    const uint end = s.n - min(s.n, 1u + rules.protect_pages);
    for (uint row = gl_SubgroupInvocationID; row + 1u < s.n; row += gl_SubgroupSize) {
        const uint part = rules.prompt_slots != 0u && (word_of(t.flags, s, row) & kFlagPrompt) != 0u ? 1u : 0u;
        const bool is_there = word_of(t.slots, s, row) != kNoSlotWord;
        n_sealed += part;
        n_there += is_there ? part : 0u;
        if (!is_there || row < rules.front_rows || !may_leave(t, s, row)) continue;
        const uvec2 key = uvec2(key_of_score(word_of(t.last_score, s, row)), word_of(t.stamp, s, row));
        take(any[part], key, row);
        if (row < end) take(outside[part], key, row);
    }
    const uint gives = prompt_gives(rules.prompt_slots, subgroupAdd(n_sealed), subgroupAdd(n_there));
    const uint rows[4] = uint[4](min_row(outside[0]), min_row(outside[1]), min_row(any[0]), min_row(any[1]));
    for (uint i = 0u; i < 4u; i += 2u) {
        const uint first = rows[i + gives], second = rows[i + 1u - gives];
        if (first != kNoRow || second != kNoRow) return first != kNoRow ? first : second;
    }
    return kNoRow;
}

// kNoRow if no page leaves the table.
uint victim_of(VictimRules rules, TablesAt t, Stream s, Room room) {
    uint row = kNoRow;
    if (s.n == 0u) return row;
    if (rules.victim == kVictimWindow) {
        row = window_victim(rules, t, s, room);
    } else if (rules.victim == kVictimStalest) {
        row = stalest_victim(rules, t, s, room);
    } else if (is_full(s, room)) {
        if (rules.victim == kVictimLightest) row = lightest_victim(rules, t, s, room);
        if (rules.victim == kVictimMarked) row = marked_victim(t, s);
        if (rules.victim == kVictimRandom) row = random_victim(rules, t, s, room);
    }
    return row != kNoRow && is_filling(t, s, row) ? kNoRow : row;
}

#endif
