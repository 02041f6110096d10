// Pages for tests of the spill store: bf16 values like those of keys and values, every bit pattern, and noise.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace page_makers {

using Bytes = std::vector<std::byte>;

// xorshift64*
inline uint64_t next_random(uint64_t& state) {
  state ^= state >> 12;
  state ^= state << 25;
  state ^= state >> 27;
  return state * 0x2545F4914F6CDD1Du;
}

inline Bytes page_of(const std::vector<uint16_t>& values) {
  Bytes page(values.size() * 2);
  std::memcpy(page.data(), values.data(), page.size());
  return page;
}

inline Bytes random_page(uint32_t page_bytes, uint64_t seed) {
  uint64_t state = seed * 2 + 1;
  Bytes page(page_bytes);
  for (std::byte& b : page) b = static_cast<std::byte>(next_random(state) >> 56);
  return page;
}

// Sums of uniform numbers with a scale per channel: exponents of some 2.7 bits, as real keys have.
inline Bytes model_page(uint32_t page_bytes, uint64_t seed) {
  uint64_t state = seed * 2 + 1;
  std::vector<uint16_t> values(page_bytes / 2);
  for (size_t i = 0; i < values.size(); ++i) {
    float sum = -2.0f;
    for (int k = 0; k < 4; ++k) sum += static_cast<float>(next_random(state) >> 40) / 16777216.0f;
    const float scale = 1.0f + static_cast<float>(i % 64 * 7 % 13) / 4.0f;
    values[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(sum * scale) >> 16);
  }
  return page_of(values);
}

}  // namespace page_makers
