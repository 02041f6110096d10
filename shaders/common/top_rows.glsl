// The rows with the largest keys, by one workgroup, in ascending order of rows. Of equal keys the lower rows are taken.
// Keys may lie anywhere: there is no limit to the number of rows.
//
// Contract of the shader that includes it:
//   uint key_of(uint row)                        ordered_key(), kKeyNever or kKeyAlways; the same in every call
//   void take(uint row, uint key, uint place)    called for each row that is taken; `place` counts them
// Both are called with row % kInvocations == invocation() only.
#ifndef WEIR_TOP_ROWS_GLSL
#define WEIR_TOP_ROWS_GLSL
#include "common/keys.glsl"

uint key_of(uint row);
void take(uint row, uint key, uint place);

// Rows with larger keys are taken, and the first n_equal rows with this one.
struct Threshold {
    uint key, n_equal;
};

const uint kDigitBits = 8u, kBins = 256u;
shared uint bins[kBins];
shared uint found_digit, found_left;

// For the n_best rows besides those with kKeyAlways.
Threshold find_threshold(uint n_rows, uint n_best) {
    uvec3 own = uvec3(0xFFFFFFFFu, 0u, 0u);
    for (uint row = invocation(); row < n_rows; row += kInvocations) {
        const uint key = key_of(row);
        if (key != kKeyNever && key != kKeyAlways) own = uvec3(min(own.x, key), max(own.y, key), own.z + 1u);
    }
    const uvec3 range = workgroup_range(own);
    if (n_best == 0u) return Threshold(kKeyAlways - 1u, 0u);
    if (n_best >= range.z) return Threshold(kKeyNever, 0u);
    // The bits that all keys share are known; then digit by digit.
    uint n_bits = range.x == range.y ? 0u : uint(findMSB(range.x ^ range.y)) + 1u;
    uint known = n_bits == 32u ? 0u : range.y >> n_bits << n_bits, left = n_best;
    while (n_bits > 0u) {
        const uint shift = n_bits > kDigitBits ? n_bits - kDigitBits : 0u;
        const uint mask = n_bits == 32u ? 0u : 0xFFFFFFFFu << n_bits;
        bins[invocation()] = 0u;
        barrier();
        for (uint row = invocation(); row < n_rows; row += kInvocations) {
            const uint key = key_of(row);
            if (key != kKeyNever && key != kKeyAlways && ((key ^ known) & mask) == 0u)
                atomicAdd(bins[key >> shift & (kBins - 1u) & ~(mask >> shift)], 1u);
        }
        barrier();
        const uint digit = kBins - 1u - invocation(), count = bins[digit];
        const uint above = scan(count, 0u).x;
        if (above < left && above + count >= left) {
            found_digit = digit;
            found_left = left - above;
        }
        barrier();
        known |= found_digit << shift;
        left = found_left;
        n_bits = shift;
        barrier();
    }
    return Threshold(known, left);
}

// Returns how many were taken.
uint take_rows(uint n_rows, Threshold t) {
    uint n_above = 0u, n_equal = 0u, side = 0u;
    for (uint first = 0u; first < n_rows; first += kInvocations, side ^= 1u) {
        const uint row = first + invocation(), key = row < n_rows ? key_of(row) : kKeyNever;
        const bool is_above = key > t.key, is_equal = key == t.key && t.n_equal != 0u;
        const uvec2 before = scan((is_above ? 1u : 0u) + (is_equal ? 0x10000u : 0u), side);
        const uint equals = n_equal + (before.x >> 16);
        if (is_above || (is_equal && equals < t.n_equal))
            take(row, key, n_above + (before.x & 0xFFFFu) + min(equals, t.n_equal));
        n_above += before.y & 0xFFFFu;
        n_equal += before.y >> 16;
    }
    return n_above + min(n_equal, t.n_equal);
}

#endif
