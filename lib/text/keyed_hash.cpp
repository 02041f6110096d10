// Drawing hash keys.
#include "text/keyed_hash.h"

#include <atomic>
#include <chrono>

#if defined(__linux__)
#include <sys/random.h>
#endif

#include "text/text_hash.h"

namespace weir {
namespace {

bool draw(HashKey& key) {
#if defined(__linux__)
  // GRND_NONBLOCK: while a machine starts there may be no randomness yet, and opening a file does not wait for it.
  return getrandom(&key, sizeof(key), GRND_NONBLOCK) == static_cast<ssize_t>(sizeof(key));
#else
  (void)key;
  return false;
#endif
}

}  // namespace

HashKey random_hash_key() {
  HashKey key;
  if (draw(key)) return key;
  static std::atomic<uint64_t> n_keys{0};
  uint64_t seed = text_hash_mix(kTextHashSeed, n_keys.fetch_add(1, std::memory_order_relaxed));
  seed = text_hash_mix(seed, static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()));
  seed = text_hash_mix(seed, static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count()));
  seed = text_hash_mix(seed, reinterpret_cast<uintptr_t>(&key));     // where the stack is
  seed = text_hash_mix(seed, reinterpret_cast<uintptr_t>(&n_keys));  // where the library is
  key.k0 = text_hash_mix(seed, 1);
  key.k1 = text_hash_mix(key.k0, seed);
  return key;
}

}  // namespace weir
