// The rows with the largest keys, by one workgroup, in ascending order of rows. Of equal keys the lower rows are taken.
// Keys may lie anywhere: there is no limit to the number of rows.
// Method: an invocation keeps the keys of kOwnRows rows in registers, and loops over them are unrolled. More rows than
// the workgroup keeps are read again in each pass, a block at a time. A histogram divides the range of the floats into
// bins of equal width; the bin of the threshold mostly has few keys, which are ranked. Otherwise a radix select runs
// over the keys.
//
// Contract of the shader that includes it:
//   uint key_of(uint row)                        ordered_key(), kKeyNever or kKeyAlways; the same in every call
//   void take(uint row, uint key, uint place)    called for each row that is taken; `place` counts them
// Both are called with row % kThreads == invocation(); if one block has all rows key_of also with others.
#ifndef WEIR_TOP_ROWS_GLSL
#define WEIR_TOP_ROWS_GLSL
#extension GL_EXT_control_flow_attributes : require
#define WEIR_ANY_INVOCATIONS
#include "common/keys.glsl"
#include "pages.h"

#ifdef WEIR_MOST_OWN_ROWS  // for shaders that use the constant below for something else
const uint kOwnRows = kMaxOwnRows;
#else
layout(constant_id = 2) const uint kOwnRows = 1;
#endif

uint key_of(uint row);
void take(uint row, uint key, uint place);

// Rows with larger keys are taken, and the first n_equal rows with this one.
struct Threshold {
    uint key, n_equal;
};

// A block of rows, each thread's at once.
const uint kBlockRows = kOwnRows * kThreads;
uint own_keys[kOwnRows];

// Only with the largest kOwnRows there may be several blocks: without, drivers drop their code.
bool is_long(uint n_rows) { return kOwnRows == kMaxOwnRows && n_rows > kBlockRows; }
bool has_block(uint first, uint n_rows) { return first == 0u || (is_long(n_rows) && first < n_rows); }

uint own_row(uint first, uint i) { return first + i * kThreads + invocation(); }

void read_keys(uint first, uint n_rows) {
    [[unroll]] for (uint i = 0u; i < kOwnRows; ++i) {
        const uint row = own_row(first, i);
        // Read in any case, so that no load waits for a branch.
        const uint key = key_of(row < n_rows ? row : min(invocation(), n_rows - 1u));
        own_keys[i] = row < n_rows ? key : kKeyNever;
    }
}

// The next block of several. Invocations that took rows of the one before meet the others first: their lanes must be
// there when those of the block are counted.
void read_next(uint first, uint n_rows) {
    if (!is_long(n_rows)) return;
    barrier();
    read_keys(first, n_rows);
}

// Neither kKeyNever nor kKeyAlways.
bool is_open(uint key) { return key - 1u < kKeyAlways - 1u; }

const uint kBinBits = 10u, kBins = 1u << kBinBits, kOwnBins = kBins / kThreads;
const uint kMaxRanked = kThreads;
shared uint bins[kBins];
shared uint ranked[kMaxRanked];
shared uint n_ranked, found_bin, found_left, found_count, found_key;
shared uint n_before[kOwnRows * kMaxParts];

// Neighbouring bins lie kThreads apart, so that an invocation's bins are in the bank of its lane.
void count_in(uint bin) { atomicAdd(bins[bin % kOwnBins * kThreads + bin / kOwnBins], 1u); }

// The bin in which the `left` largest keys end; after that all bins are empty.
void find_bin(uint left) {
    barrier();
    const uint own = kThreads - 1u - invocation();
    uint count[kOwnBins], sum = 0u;
    [[unroll]] for (uint k = 0u; k < kOwnBins; ++k) {
        count[k] = bins[k * kThreads + own];
        bins[k * kThreads + own] = 0u;
        sum += count[k];
    }
    uint above = scan(sum, 0u).x;
    if (above < left && above + sum >= left) {
        [[unroll]] for (uint k = kOwnBins; k-- > 0u;) {
            if (above < left && above + count[k] >= left) {
                found_bin = own * kOwnBins + k;
                found_left = left - above;
                found_count = count[k];
            }
            above += count[k];
        }
    }
    barrier();
}

// The bin of a key; per_width is above 0 and finite. It never falls as keys rise, whatever is rounded.
uint bin_of(uint key, uint low_key, float per_width) {
    precise float at = (float_of_key(key) - float_of_key(low_key)) * per_width;
    return key <= low_key ? 0u : uint(clamp(at, 0.0, float(kBins - 1u)));
}

// The one of the found_count keys in found_bin that found_left keys reach.
Threshold rank_bin(uint n_rows, uint low_key, float per_width) {
    const uint bin = found_bin, left = found_left, n = found_count;
    for (uint first = 0u; has_block(first, n_rows); first += kBlockRows) {
        read_next(first, n_rows);
        [[unroll]] for (uint i = 0u; i < kOwnRows; ++i) {
            const uint key = own_keys[i];
            if (is_open(key) && bin_of(key, low_key, per_width) == bin) ranked[atomicAdd(n_ranked, 1u)] = key;
        }
    }
    barrier();
    if (invocation() < n) {
        const uint mine = ranked[invocation()];
        uint above = 0u, equal = 0u;
        for (uint i = 0u; i < n; ++i) {
            const uint other = ranked[i];
            above += other > mine ? 1u : 0u;
            equal += other == mine ? 1u : 0u;
        }
        if (above < left && above + equal >= left) {  // all with this key write the same
            found_key = mine;
            found_left = left - above;
        }
    }
    barrier();
    return Threshold(found_key, found_left);
}

// Digit by digit, after the bits that all keys share.
Threshold find_digits(uint n_rows, uint left, uint high_key) {
    uint n_bits = high_key == kKeyOfNothing ? 0u : uint(findMSB(high_key ^ kKeyOfNothing)) + 1u;
    uint known = n_bits == 32u ? 0u : high_key >> n_bits << n_bits;
    while (n_bits > 0u) {
        const uint shift = n_bits > kBinBits ? n_bits - kBinBits : 0u;
        const uint mask = n_bits == 32u ? 0u : 0xFFFFFFFFu << n_bits;
        for (uint first = 0u; has_block(first, n_rows); first += kBlockRows) {
            read_next(first, n_rows);
            [[unroll]] for (uint i = 0u; i < kOwnRows; ++i) {
                const uint key = own_keys[i];
                if (is_open(key) && ((key ^ known) & mask) == 0u)
                    count_in(key >> shift & (kBins - 1u) & ~(mask >> shift));
            }
        }
        find_bin(left);
        known |= found_bin << shift;
        left = found_left;
        n_bits = shift;
    }
    return Threshold(known, left);
}

// For the `budget` best rows besides those with kKeyAlways, less the sum of own_paid over the workgroup. If one
// block has all rows, own_keys has their keys.
Threshold find_threshold(uint n_rows, uint budget, uint own_paid) {
    for (uint k = 0u; k < kOwnBins; ++k) bins[k * kThreads + invocation()] = 0u;
    if (invocation() == 0u) n_ranked = 0u;
    uvec4 own = uvec4(kKeyAlways, kKeyNever, 0u, own_paid);
    for (uint first = 0u; has_block(first, n_rows); first += kBlockRows) {
        read_next(first, n_rows);
        [[unroll]] for (uint i = 0u; i < kOwnRows; ++i) {
            const uint key = own_keys[i];
            const bool counts = is_open(key);
            own.x = min(own.x, counts && key != kKeyOfNothing ? key : kKeyAlways);
            own.y = max(own.y, counts ? key : kKeyNever);
            own.z += counts ? 1u : 0u;
        }
    }
    const uvec4 all = workgroup_range(own);
    const uint n_best = budget - min(budget, all.w), low_key = min(all.x, all.y), high_key = all.y;
    if (n_best == 0u) return Threshold(kKeyAlways - 1u, 0u);
    if (n_best >= all.z) return Threshold(kKeyNever, 0u);
    precise float per_width = float(kBins) / (float_of_key(high_key) - float_of_key(low_key));
    if (low_key < high_key && high_key < kKeyOfInfinity && per_width > 0.0 && is_finite(per_width)) {
        for (uint first = 0u; has_block(first, n_rows); first += kBlockRows) {
            read_next(first, n_rows);
            [[unroll]] for (uint i = 0u; i < kOwnRows; ++i) {
                if (is_open(own_keys[i])) count_in(bin_of(own_keys[i], low_key, per_width));
            }
        }
        find_bin(n_best);
        if (found_count <= kMaxRanked) return rank_bin(n_rows, low_key, per_width);
    }
    return find_digits(n_rows, n_best, high_key);
}

// Counts of kMaxOwnRows rows in a word: a subgroup has at most 128 lanes.
const uint kPackedBits = 32u / kMaxOwnRows;
uint packed(uint count, uint i) { return count << i * kPackedBits; }
uint unpacked(uint word, uint i) { return word >> i * kPackedBits & 0xFFu; }

// Returns how many were taken. Counts of larger and of equal keys share a word: a block has fewer than 2^16 rows.
uint take_rows(uint n_rows, Threshold t) {
    const uint n_parts = kOwnRows * gl_NumSubgroups, each = (n_parts + kThreads - 1u) / kThreads;
    uint n_above = 0u, n_equal = 0u, side = 0u;
    for (uint first = 0u; has_block(first, n_rows); first += kBlockRows, side ^= 1u) {
        read_next(first, n_rows);
        uint above = 0u, equal = 0u;
        [[unroll]] for (uint i = 0u; i < kOwnRows; ++i) {
            above |= packed(own_keys[i] > t.key ? 1u : 0u, i);
            equal |= packed(own_keys[i] == t.key && t.n_equal != 0u ? 1u : 0u, i);
        }
        const uint above_to = subgroupInclusiveAdd(above), equal_to = subgroupInclusiveAdd(equal);
        if (gl_SubgroupInvocationID + 1u == gl_SubgroupSize) {
            [[unroll]] for (uint i = 0u; i < kOwnRows; ++i)
                n_before[i * gl_NumSubgroups + gl_SubgroupID] = unpacked(above_to, i) | unpacked(equal_to, i) << 16;
        }
        barrier();
        // From the counts of each row of subgroups to those of all before it.
        uint own = 0u;
        for (uint k = 0u; k < each; ++k) {
            const uint part = invocation() * each + k;
            if (part < n_parts) own += n_before[part];
        }
        const uvec2 before = scan(own, side);
        own = before.x;
        for (uint k = 0u; k < each; ++k) {
            const uint part = invocation() * each + k;
            if (part < n_parts) {
                const uint count = n_before[part];
                n_before[part] = own;
                own += count;
            }
        }
        barrier();
        [[unroll]] for (uint i = 0u; i < kOwnRows; ++i) {
            const uint is_above = unpacked(above, i), is_equal = unpacked(equal, i);
            const uint counts = n_before[i * gl_NumSubgroups + gl_SubgroupID];
            const uint aboves = n_above + (counts & 0xFFFFu) + unpacked(above_to, i) - is_above;
            const uint equals = n_equal + (counts >> 16) + unpacked(equal_to, i) - is_equal;
            if (is_above != 0u || (is_equal != 0u && equals < t.n_equal))
                take(own_row(first, i), own_keys[i], aboves + min(equals, t.n_equal));
        }
        n_above += before.y & 0xFFFFu;
        n_equal += before.y >> 16;
    }
    return n_above + min(n_equal, t.n_equal);
}

// The n_best rows besides those with kKeyAlways.
uint take_best(uint n_rows, uint n_best) {
    if (n_rows == 0u) return 0u;
    if (!is_long(n_rows)) read_keys(0u, n_rows);
    return take_rows(n_rows, find_threshold(n_rows, n_best, 0u));
}

#endif
