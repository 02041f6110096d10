// Top-k selection over scores in time linear in their number: scores become integers of the same order, the threshold
// is found bit by bit, and ties at the threshold go to the lowest rows. Plain loops that the compiler vectorises.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace weir::cpu {

// Maps a score to an integer of the same order. Both zeros are equal; NaN counts as -inf. 0 is below every score.
inline uint32_t order_key(float score) {
  const auto bits = std::bit_cast<uint32_t>(std::isnan(score) ? -INFINITY : score + 0.0f);
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}

inline uint32_t count_at_least(const uint32_t* key, uint32_t n, uint32_t threshold) {
  uint32_t count = 0;
  for (uint32_t row = 0; row < n; ++row) count += key[row] >= threshold ? 1u : 0u;
  return count;
}

// A threshold that n_best > 0 keys reach: exactly so many, or the largest. At least n_best keys must not be 0. count(t)
// is how many keys reach t.
template <class F>
uint32_t best_threshold(uint32_t n_best, const F& count) {
  uint32_t threshold = 0;
  for (uint32_t bit = 0x80000000u; bit != 0; bit >>= 1) {
    const uint32_t n_reach = count(threshold | bit);
    if (n_reach >= n_best) threshold |= bit;
    if (n_reach == n_best) break;
  }
  return threshold;
}

// Calls pick(row), rows ascending, for the n_best > 0 highest keys. At least n_best keys must not be 0.
template <class F>
void for_best(const uint32_t* key, uint32_t n, uint32_t n_best, const F& pick) {
  const uint32_t threshold = best_threshold(n_best, [&](uint32_t t) { return count_at_least(key, n, t); });
  uint32_t n_ties = n_best;
  for (uint32_t row = 0; row < n; ++row) n_ties -= key[row] > threshold ? 1u : 0u;
  for (uint32_t row = 0; row < n; ++row) {
    const bool tie = key[row] == threshold && n_ties > 0;
    n_ties -= tie ? 1u : 0u;
    if (tie || key[row] > threshold) pick(row);
  }
}

}  // namespace weir::cpu
