// The 64-bit XXH3 of bytes that come in pieces. It finds damage, not forgery.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weir {

class Checksum {
 public:
  Checksum() { reset(); }
  void reset();
  void add(const void* bytes, uint64_t n);
  uint64_t value() const;

 private:
  alignas(64) std::byte state_[576];
};

}  // namespace weir
