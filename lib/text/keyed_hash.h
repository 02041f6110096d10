// Hashes for look-ups in tables whose entries come from a file that may be hostile. Each model draws a secret key, so
// that no file can be made whose entries collide. What identifies a model (Tokenizer::hash) is computed with
// text_hash.h instead, which has no key.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace weir {

struct HashKey {
  uint64_t k0 = 0, k1 = 0;
};

// See random_number(). Never fails.
HashKey random_hash_key();

// SipHash (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012) with `kRounds` rounds for each word and
// `kFinalRounds` at the end.
template <int kRounds, int kFinalRounds>
uint64_t sip_hash(std::string_view text, const HashKey& key) {
  static_assert(std::endian::native == std::endian::little, "words are read as they lie in memory");
  uint64_t v0 = key.k0 ^ 0x736f6d6570736575u, v1 = key.k1 ^ 0x646f72616e646f6du;
  uint64_t v2 = key.k0 ^ 0x6c7967656e657261u, v3 = key.k1 ^ 0x7465646279746573u;
  const auto rounds = [&](int n) {
    for (; n > 0; --n) {
      v0 += v1;
      v2 += v3;
      v1 = std::rotl(v1, 13) ^ v0;
      v3 = std::rotl(v3, 16) ^ v2;
      v0 = std::rotl(v0, 32) + v3;
      v2 += v1;
      v3 = std::rotl(v3, 21) ^ v0;
      v1 = std::rotl(v1, 17) ^ v2;
      v2 = std::rotl(v2, 32);
    }
  };
  const auto take = [&](uint64_t word) {
    v3 ^= word;
    rounds(kRounds);
    v0 ^= word;
  };
  const char* at = text.data();
  size_t left = text.size();
  for (; left >= 8; at += 8, left -= 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    take(word);
  }
  uint64_t last = uint64_t{text.size()} << 56;  // the last word ends with the length
  for (size_t i = 0; i < left; ++i) last |= uint64_t{static_cast<uint8_t>(at[i])} << (8 * i);
  take(last);
  v2 ^= 0xff;
  rounds(kFinalRounds);
  return v0 ^ v1 ^ v2 ^ v3;
}

// For hash tables; the variant that Python, Rust and Ruby use there.
inline uint64_t keyed_hash(std::string_view text, const HashKey& key) { return sip_hash<1, 3>(text, key); }

// For pairs of numbers: the upper bits of a product with a secret odd number ("multiply-shift", Dietzfelbinger et al.,
// 1997). Whatever the file holds, two different pairs share a slot of a table of n with a probability of at most 2 / n.
// Take the result's upper bits.
inline uint64_t keyed_hash(uint64_t number, const HashKey& key) { return (number ^ key.k0) * (key.k1 | 1); }

}  // namespace weir
