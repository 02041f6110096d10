// XXH3 behind an interface without its header.
#include "kv/checksum.h"

#define XXH_INLINE_ALL  // no symbol of it
#include <xxhash.h>

#include <new>

namespace weir {

static_assert(sizeof(XXH3_state_t) == 576 && alignof(XXH3_state_t) <= 64);

void Checksum::reset() { XXH3_64bits_reset(new (state_) XXH3_state_t); }
void Checksum::add(const void* bytes, uint64_t n) {
  XXH3_64bits_update(std::launder(reinterpret_cast<XXH3_state_t*>(state_)), bytes, n);
}
uint64_t Checksum::value() const {
  return XXH3_64bits_digest(std::launder(reinterpret_cast<const XXH3_state_t*>(state_)));
}

}  // namespace weir
