// The bytes of a whole file, mapped read-only or read into memory. The only part of the reader that knows the operating
// system. A mapping is the file itself: when somebody truncates or rewrites the file meanwhile, reading may fault
// (SIGBUS) or give new bytes, which no reader of a mapping can prevent. Bytes that were read are the reader's own, and
// the file may do what it likes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <span>

#include "core/progress.h"
#include "core/status.h"

namespace weir {

// Puts "<path>: " before the thread's error text; of a very long path only the end, so that the rest still fits.
Status in_file(Status status, const char* path);

inline constexpr size_t kProgressBytes = size_t{16} << 20;  // between two reports

class FileBytes {
 public:
  FileBytes() = default;
  ~FileBytes() { close(); }
  FileBytes(const FileBytes&) = delete;
  FileBytes& operator=(const FileBytes&) = delete;
  FileBytes(FileBytes&& other) noexcept { swap(other); }
  FileBytes& operator=(FileBytes&& other) noexcept {
    swap(other);
    return *this;
  }

  // All take the regular file `path`, which must not be empty. A failure leaves the object without bytes and names the
  // path: WEIR_ERR_IO with the system's reason, and of read() also WEIR_ERR_OUT_OF_MEMORY and, from `progress`,
  // WEIR_ERR_CANCELLED.
  Status map(const char* path);
  // Reads a file of at most `most` bytes into memory of the system's, which nobody else can change.
  Status copy(const char* path, size_t most);
  // Reads it into memory of `memory`. The file's size is looked at before and after: one that changed meanwhile is
  // WEIR_ERR_IO. `progress` hears of 0, then of each 16 MiB, then of all bytes.
  Status read(const char* path, std::pmr::memory_resource* memory, OpenProgress& progress);
  void close();

  std::span<const uint8_t> bytes() const { return {static_cast<const uint8_t*>(data_), size_}; }
  bool is_copy() const { return memory_ != nullptr; }
  // Tells the system that all of a mapped file will be read soon. A hint: no failure.
  void will_need() const;

 private:
  Status read_all(int file, OpenProgress& progress);
  void swap(FileBytes& other) noexcept;

  void* data_ = nullptr;
  size_t size_ = 0;
  std::pmr::memory_resource* memory_ = nullptr;  // of a copy; null: the bytes are mapped
};

}  // namespace weir
