// Drawing random numbers.
#include "core/random.h"

#include <atomic>
#include <chrono>

#if defined(__linux__)
#include <sys/random.h>
#endif

namespace weir {
namespace {

bool draw([[maybe_unused]] uint64_t& number) {
#if defined(__linux__)
  // GRND_NONBLOCK: while a machine starts there may be no randomness yet, and opening a file does not wait for it.
  return getrandom(&number, sizeof(number), GRND_NONBLOCK) == static_cast<ssize_t>(sizeof(number));
#else
  return false;
#endif
}

// The finisher of SplitMix64 (Steele, Lea and Flood, 2014) over what was mixed before.
uint64_t mix(uint64_t hash, uint64_t word) {
  uint64_t z = hash + word + 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

}  // namespace

uint64_t random_number() {
  uint64_t number = 0;
  if (draw(number)) return number;
  static std::atomic<uint64_t> n_drawn{0};
  number = mix(0, n_drawn.fetch_add(1, std::memory_order_relaxed));
  number = mix(number, static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()));
  number = mix(number, static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count()));
  number = mix(number, reinterpret_cast<uintptr_t>(&number));  // where the stack is
  return mix(number, reinterpret_cast<uintptr_t>(&n_drawn));   // where the library is
}

}  // namespace weir
