// Random numbers for tests of device code on the host, the same in every run.
#pragma once

#include <cstdint>

namespace weir::test {

inline uint64_t random_state = 1;
inline uint32_t random_bits() {
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return static_cast<uint32_t>(random_state >> 32);
}
inline uint32_t below(uint32_t n) { return random_bits() % n; }
inline float uniform() { return static_cast<float>(random_bits()) * 0x1p-32f; }
inline float normal() { return (uniform() + uniform() + uniform() + uniform() - 2.0f) * 1.7f; }

}  // namespace weir::test
