// The bytes of a saved session (docs/formats/session.md), written and read by the same calls: a part describes what it
// saves once, and the direction decides which way the values go. Around them are a header, sections that each end with
// a checksum, and a checksum of everything.
//
// Reading trusts nothing. Bytes only ever go into room that the caller has sized by its own plan: a number in the file
// is compared with that room, and is never a size. There is no other way to read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "core/callback.h"
#include "core/status.h"
#include "kv/checksum.h"

namespace weir {

// Version 2 is of conversations of which not all tokens are there, and differs in their section alone.
inline constexpr uint32_t kWholeVersion = 1, kSessionVersion = 2;

// The application's callbacks; `at` is the offset in the file.
class ByteSink {
 public:
  virtual Answer write(const void* bytes, uint64_t n, uint64_t at) = 0;

 protected:
  ~ByteSink() = default;
};

class ByteSource {
 public:
  // Stores at `n_read` how many bytes came; 0: the file ends.
  virtual Answer read(void* bytes, uint64_t n, uint64_t at, uint64_t& n_read) = 0;

 protected:
  ~ByteSource() = default;
};

class Io {
 public:
  explicit Io(ByteSink& sink) : sink_(&sink) {}
  explicit Io(ByteSource& source) : source_(&source) {}
  Io(const Io&) = delete;
  Io& operator=(const Io&) = delete;

  bool saves() const { return sink_ != nullptr; }
  bool restores() const { return source_ != nullptr; }
  // Tokens of the conversation. Restored parts compare what they read with it: its section is before theirs.
  uint32_t n_tokens = 0;
  // The format's version: given to begin() when saving, from the header after it when restoring.
  uint32_t version() const { return version_; }

  Status begin(uint32_t version);
  // Begins a section, four characters; what is until the next one or the end is in it.
  Status section(const char (&name)[5]) {
    return begin_section(uint32_t{static_cast<uint8_t>(name[0])} | uint32_t{static_cast<uint8_t>(name[1])} << 8 |
                         uint32_t{static_cast<uint8_t>(name[2])} << 16 | uint32_t{static_cast<uint8_t>(name[3])} << 24);
  }
  // Ends the section that is open, if one is. What a file says is certain only from then on.
  Status end_section();
  Status finish();

  // One number or a plain enum: saved from where it is, or restored to there.
  template <class T>
  Status value(T& value) {
    static_assert(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>);
    return transfer(&value, sizeof(value));
  }
  // As many values as there is room for: the same number in both directions, whatever the file says.
  template <class T, size_t kAll>
  Status array(std::span<T, kAll> all) {
    static_assert(std::is_trivially_copyable_v<T>);
    return transfer(all.data(), all.size_bytes());
  }
  // The first n values of the room, where n may be from the file: WEIR_ERR_FORMAT naming `what` when there is less.
  template <class T, size_t kRoom>
  Status array(std::span<T, kRoom> room, uint64_t n, const char* what) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (n > room.size()) return too_many(n, room.size(), what);
    return transfer(room.data(), n * sizeof(T));
  }
  // Restoring: passes over n bytes that nobody wants, at most `max`.
  Status pass_over(uint64_t n, uint64_t max, const char* what);
  // WEIR_ERR_FORMAT: the file is damaged before where it was read last, and how.
  Status damaged(const char* format, ...) const __attribute__((format(printf, 2, 3)));

 private:
  Status begin_section(uint32_t id);
  Status transfer(void* data, uint64_t n) { return saves() ? save(data, n) : restore(data, n); }
  Status save(const void* data, uint64_t n);
  Status restore(void* out, uint64_t n);
  Status put(const void* data, uint64_t n);
  Status flush();
  Status begin_saving();
  Status begin_restoring();
  Status too_many(uint64_t n, uint64_t room, const char* what) const;

  ByteSink* sink_ = nullptr;
  ByteSource* source_ = nullptr;
  Checksum section_, total_;
  uint32_t in_ = 0;  // the section that is open; 0: none
  uint32_t version_ = 0;
  uint64_t at_ = 0;  // saving: of the first byte in buffer_
  uint32_t n_buffered_ = 0;
  std::byte buffer_[4096];
};

}  // namespace weir
