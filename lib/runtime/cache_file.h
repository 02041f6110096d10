// A file of a driver's compiled pipelines in a folder of the user's. What is read there is handed to the driver, which
// may trust it with machine code: so folder and file must belong to the user and be writable by nobody else, a file
// that is a link is not followed, a folder only if the link is not another user's, and a header says what the file is
// for and whether it is whole. A file is never changed: a new one takes its name. Several processes may read and write;
// the last one's file stays. Nothing here uses the heap.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/status.h"

namespace weir {

// What compiled code depends on: the driver, the device, and what was compiled.
struct CacheKey {
  uint32_t vendor = 0, device = 0, driver = 0;
  uint32_t reserved = 0;
  uint8_t uuid[16] = {};
  uint64_t code = 0;  // a checksum of all that may be compiled
  bool operator==(const CacheKey&) const = default;
};

inline constexpr uint64_t kMaxCacheBytes = uint64_t{128} << 20;

// Memory from the system for the content of one file, and only while it is read or written.
class CacheBytes {
 public:
  CacheBytes() = default;
  ~CacheBytes() { release(); }
  CacheBytes(const CacheBytes&) = delete;
  CacheBytes& operator=(const CacheBytes&) = delete;
  Status take(uint64_t n);  // n > 0; what was there is gone
  void release();
  std::byte* data() const { return data_; }
  uint64_t size() const { return size_; }
  void shrink(uint64_t n) { size_ = n; }

 private:
  std::byte* data_ = nullptr;
  uint64_t size_ = 0, taken_ = 0;
};

// Reads the file `name` of a folder. Nothing in `out` and no failure: there is no such file. Failures leave nothing in
// `out`, name the file and say what is wrong with it: WEIR_ERR_NOT_FOUND: it is for another key; WEIR_ERR_FORMAT: it is
// no such file, or damaged; WEIR_ERR_IO: it cannot be read, or may not be trusted.
Status read_cache_file(const char* folder, const char* name, const CacheKey& key, CacheBytes& out);

// Writes it, and makes the folder and those above it where they are missing, for the user alone. After a failure, which
// is WEIR_ERR_IO, the file is what it was before.
Status write_cache_file(const char* folder, const char* name, const CacheKey& key, const void* bytes, uint64_t n);

}  // namespace weir
