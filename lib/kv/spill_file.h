// The file behind the spill store: equal cells of 512 bytes, chained by links in memory, so that a block takes the room
// of its own size and nothing fragments. It has no name once it is open, nobody else can open it, and its bytes go away
// with the process. It knows nothing of what a block holds; the store checks what comes back.
//
// take, give_back and runs change or read the chains: one thread at a time. read and write use none of that and may run
// on several threads for different cells.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "core/status.h"

namespace weir {

// What the file asks of the system, as in POSIX; tests put faults in their place. `allocate` returns an error number
// like posix_fallocate.
struct FileCalls {
  int (*open)(const char* path, int flags, mode_t mode);
  int (*unlink)(const char* path);
  int (*allocate)(int fd, off_t offset, off_t bytes);
  ssize_t (*read)(int fd, void* data, size_t bytes, off_t offset);
  ssize_t (*write)(int fd, const void* data, size_t bytes, off_t offset);
};
extern const FileCalls kSystemFile;

class SpillFile {
 public:
  static constexpr uint32_t kCellBytes = 512;
  static constexpr uint64_t cells_for(uint64_t bytes) { return (bytes + kCellBytes - 1) / kCellBytes; }

  // Neighbouring cells of a block: one read or write.
  struct Run {
    uint64_t offset;
    uint32_t bytes;
  };

  SpillFile() = default;
  ~SpillFile();  // closes
  SpillFile(const SpillFile&) = delete;
  SpillFile& operator=(const SpillFile&) = delete;

  // Creates the file at `path`, where nothing may be, removes its name and has the system reserve n_cells * 512 bytes.
  // `links` has n_cells entries and stays with the file. WEIR_ERR_IO names path, bytes and what went wrong; nothing is
  // left behind then.
  Status open(const char* path, uint32_t n_cells, uint32_t* links, const FileCalls& calls);
  bool is_open() const { return fd_ >= 0; }
  uint32_t n_free() const { return n_free_; }

  // Takes n >= 1 cells, n <= n_free().
  void take(uint32_t n, uint32_t& first, uint32_t& last);
  void give_back(uint32_t n, uint32_t first, uint32_t last);
  // Describes the cells of a block that begins with cell `first`; `out` has room for cells_for(bytes). Returns their
  // number.
  uint32_t runs(uint32_t first, uint32_t bytes, Run* out) const;

  // Goes on after short counts and interrupted calls. 0, or the error number.
  int write(const Run* runs, uint32_t n, const std::byte* data) const;
  int read(const Run* runs, uint32_t n, std::byte* data) const;

 private:
  Status create(const char* path, uint64_t bytes);

  const FileCalls* calls_ = nullptr;
  uint32_t* links_ = nullptr;  // [n_cells] the next cell of a chain; of a free cell, the next free one
  uint32_t first_free_ = 0, n_free_ = 0;
  int fd_ = -1;
};

}  // namespace weir
