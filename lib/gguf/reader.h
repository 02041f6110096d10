// A cursor over untrusted bytes: nothing is returned that does not lie inside them, and no sum or product can wrap.
// Messages say what was being read and at which byte; the caller adds the name of the key or tensor (see `in_context`).
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "core/status.h"

namespace weir {

class ByteReader {
 public:
  explicit ByteReader(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  uint64_t at() const { return at_; }
  uint64_t left() const { return bytes_.size() - at_; }

  // Each takes the next bytes, or fails with WEIR_ERR_FORMAT and stays where it is. `what` completes "the file ends
  // inside ...".
  template <class T>
  Status number(const char* what, T& out) {
    const uint8_t* data = nullptr;
    WEIR_TRY(take(what, sizeof(T), data));
    std::memcpy(&out, data, sizeof(T));
    return {};
  }
  Status take(const char* what, uint64_t n, const uint8_t*& out);
  Status string(const char* what, std::string_view& out);  // a u64 length, then that many bytes

 private:
  std::span<const uint8_t> bytes_;
  uint64_t at_ = 0;
};

// WEIR_ERR_FORMAT unless `name` has 1..max_bytes bytes of valid UTF-8 without control characters (NUL is one).
Status check_name(const char* what, std::string_view name, uint64_t max_bytes);

// How many bytes of a checked name to print with %.*s: whole characters, at most 96 bytes, so that the rest of a
// message still fits.
int shown_bytes(std::string_view name);

// Puts "<name> (<what> at byte <at>): " before the thread's error text, or "<what> at byte <at>: " when the name is not
// known.
Status in_context(Status status, std::string_view name, const char* what, uint64_t at);

}  // namespace weir
