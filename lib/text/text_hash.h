// Hash of whole arrays, for fingerprints: eight bytes per multiplication, no key, the same on every machine. Not for
// tables: whoever makes a file can make its entries collide (keyed_hash.h).
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace weir {

static_assert(std::endian::native == std::endian::little, "hashes of the same file must agree between machines");

inline constexpr uint64_t kTextHashSeed = 0x9E3779B97F4A7C15u;

constexpr uint64_t text_hash_mix(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0xD6E8FEB86659FD93u;
  return hash ^ (hash >> 32);
}

inline uint64_t text_hash(std::string_view text, uint64_t seed = kTextHashSeed) {
  uint64_t hash = text_hash_mix(seed, text.size());
  const char* at = text.data();
  size_t left = text.size();
  for (; left >= 8; at += 8, left -= 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    hash = text_hash_mix(hash, word);
  }
  if (left > 0) {
    uint64_t word = 0;
    std::memcpy(&word, at, left);
    hash = text_hash_mix(hash, word);
  }
  return text_hash_mix(hash, hash >> 29);
}

}  // namespace weir
