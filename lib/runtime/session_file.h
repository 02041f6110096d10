// The bytes of a saved session (docs/formats/session.md): a header, sections that each end with a checksum, and a
// checksum of everything. This knows sections and sizes; what they mean is in session_save.cpp and session_restore.cpp.
//
// Reading trusts nothing. Bytes only ever go into room that the caller has sized by its own plan: a number in the file
// is compared with that room, and is never a size. There is no other way to read.
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>

#include "core/callback.h"
#include "core/status.h"
#include "kv/checksum.h"
#include "kv/kv_cache.h"

namespace weir {

// Version 2 is of conversations of which not all tokens are there, and differs in their section alone.
inline constexpr uint32_t kWholeVersion = 1, kSessionVersion = 2;

constexpr uint32_t section_id(const char (&name)[5]) {
  uint32_t id = 0;
  for (uint32_t i = 0; i < 4; ++i) id |= uint32_t{static_cast<uint8_t>(name[i])} << (8 * i);
  return id;
}

enum class Section : uint32_t {
  kDescription = section_id("DESC"),
  kTokens = section_id("TOKN"),
  kLogits = section_id("LOGT"),
  kSampler = section_id("SAMP"),
  kText = section_id("TEXT"),
  kRows = section_id("ROWS"),
  kDigests = section_id("DIGS"),
  kPages = section_id("PAGE"),
  kHistory = section_id("HIST"),  // only where attention learns from its past
  kEnd = section_id("END!"),
};

// In the flags of a row: the page is in the pool.
inline constexpr uint32_t kRowResident = KvCache::kPlaced;

// What stands before a page's bytes.
enum class SavedPage : uint32_t {
  kLost = 0,  // nothing follows
  kPool = 1,  // in the pool alone: the keys and the values of its tokens
  kRaw = 2,   // this and the next two: a block, which the store had raw, compressed in memory, or in its file
  kCells = 3,
  kFile = 4,
  kPoolRaw = 5,  // this and the next two: as kPool, of a page that the store also has, in these places
  kPoolCells = 6,
  kPoolFile = 7,
};

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

class SessionWriter {
 public:
  explicit SessionWriter(ByteSink& sink) : sink_(sink) {}
  SessionWriter(const SessionWriter&) = delete;
  SessionWriter& operator=(const SessionWriter&) = delete;

  Status begin(uint32_t version);
  Status begin_section(Section section);
  Status end_section();
  Status finish();
  Status bytes(const void* data, uint64_t n);
  template <class T>
  Status number(T value) {
    static_assert(std::is_arithmetic_v<T>);
    return bytes(&value, sizeof(value));
  }
  template <class T>
  Status array(std::span<const T> values) {
    return bytes(values.data(), values.size_bytes());
  }

 private:
  Status put(const void* data, uint64_t n);
  Status flush();

  ByteSink& sink_;
  Checksum section_, total_;
  uint64_t at_ = 0;  // of the first byte in buffer_
  uint32_t n_buffered_ = 0;
  std::byte buffer_[4096];
};

class SessionReader {
 public:
  explicit SessionReader(ByteSource& source) : source_(source) {}
  SessionReader(const SessionReader&) = delete;
  SessionReader& operator=(const SessionReader&) = delete;

  Status begin();
  Status begin_section(Section section);
  Status end_section();
  Status finish();
  template <class T>
  Status number(T& value) {
    static_assert(std::is_arithmetic_v<T>);
    return fill(&value, sizeof(value));
  }
  // n values, for which there is room; WEIR_ERR_FORMAT naming `what` when there is not.
  template <class T>
  Status array(std::span<T> room, uint64_t n, const char* what) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (n > room.size()) return too_many(n, room.size(), what);
    return fill(room.data(), n * sizeof(T));
  }
  // n bytes that nobody wants, at most `most`.
  Status skip(uint64_t n, uint64_t most, const char* what);
  // For messages: where the file is wrong.
  uint64_t at() const { return at_; }
  uint32_t version() const { return version_; }

 private:
  Status fill(void* out, uint64_t n);
  Status too_many(uint64_t n, uint64_t room, const char* what) const;

  ByteSource& source_;
  Checksum section_, total_;
  Section in_ = Section::kEnd;
  uint32_t version_ = 0;
  uint64_t at_ = 0;
};

}  // namespace weir
