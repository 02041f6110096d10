// A whole file mapped read-only. The only part of the reader that knows the operating system.
// The bytes are the file's own: when somebody truncates or rewrites the file while it is mapped, reading may fault
// (SIGBUS) or give new bytes. No reader of a mapping can prevent that; weir_model_open documents that the file must not
// change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/status.h"

namespace weir {

// Puts "<path>: " before the thread's error text; of a very long path only the end, so that the rest still fits.
Status in_file(Status status, const char* path);

class FileMap {
 public:
  FileMap() = default;
  ~FileMap() { close(); }
  FileMap(const FileMap&) = delete;
  FileMap& operator=(const FileMap&) = delete;
  FileMap(FileMap&& other) noexcept { swap(other); }
  FileMap& operator=(FileMap&& other) noexcept {
    swap(other);
    return *this;
  }

  // Maps the regular file `path`, which must not be empty. Every failure is WEIR_ERR_IO with the path and the system's
  // reason, and leaves the object unmapped.
  Status open(const char* path);
  void close();

  std::span<const uint8_t> bytes() const { return {static_cast<const uint8_t*>(data_), size_}; }
  // Tells the system that all of the file will be read soon. A hint: no failure.
  void will_need() const;

 private:
  void swap(FileMap& other) noexcept;

  void* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace weir
