// Mapping and reading by POSIX calls. The descriptor is closed at once; a mapping keeps the file's contents reachable.
#include "gguf/file_bytes.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

#include "core/memory.h"
#include "core/plain_text.h"
#include "core/system_error.h"

namespace weir {
namespace {

constexpr auto kMaxBytes = static_cast<uint64_t>(std::numeric_limits<ptrdiff_t>::max());
constexpr size_t kShownPathBytes = 400;
constexpr size_t kCopyAlignment = 4096;  // a mapping's, so that tensors are as well aligned in a copy

Status io_error(const char* what, int error) { return fail(WEIR_ERR_IO, "%s: %s", what, SystemErrorText(error).get()); }

struct Descriptor {
  int number = -1;
  ~Descriptor() {
    if (number >= 0) ::close(number);
  }
};

// The end of `text`, at most kShownPathBytes of it, from the start of a character.
const char* shown_end(const char* text, size_t n) {
  if (n <= kShownPathBytes) return text;
  const char* shown = text + n - kShownPathBytes;
  while ((static_cast<unsigned char>(*shown) & 0xC0) == 0x80) ++shown;
  return shown;
}

// Opens a regular file that is not empty; `cannot` is what to say of one that is no use.
Status open_regular(const char* path, const char* cannot, Descriptor& file, uint64_t& size) {
  // Without O_NONBLOCK, opening a named pipe would wait for a writer.
  file.number = ::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file.number < 0) return io_error("cannot be opened", errno);
  struct stat info;
  if (fstat(file.number, &info) != 0) return io_error("cannot be examined", errno);
  if (S_ISDIR(info.st_mode)) return io_error(cannot, EISDIR);
  if (!S_ISREG(info.st_mode)) return fail(WEIR_ERR_IO, "not a regular file");
  if (info.st_size <= 0) return fail(WEIR_ERR_IO, "the file is empty");
  size = static_cast<uint64_t>(info.st_size);
  return size > kMaxBytes ? io_error(cannot, EFBIG) : Status();
}

Status named(Status status, const char* path) { return status.ok() ? status : in_file(status, path); }

}  // namespace

Status in_file(Status status, const char* path) {
  // Made plain before it is cut: control bytes grow by that, and the reason must still fit behind them.
  char plain[4 * kShownPathBytes + 1];
  const size_t n_path = std::strlen(path);
  const char* end = shown_end(path, n_path);
  const size_t n = plain_text(end, plain, sizeof(plain));
  const char* shown = shown_end(plain, n);
  return fail(status.code(), "%s%s: %s", end == path && shown == plain ? "" : "...", shown, last_error_text());
}

Status FileBytes::map(const char* path) {
  close();
  Descriptor file;
  uint64_t size = 0;
  WEIR_TRY(named(open_regular(path, "cannot be mapped", file, size), path));
  void* data = mmap(nullptr, static_cast<size_t>(size), PROT_READ, MAP_PRIVATE, file.number, 0);
  if (data == MAP_FAILED) return in_file(io_error("cannot be mapped", errno), path);
  data_ = data;
  size_ = static_cast<size_t>(size);
  return {};
}

Status FileBytes::copy(const char* path, size_t most) {
  close();
  Descriptor file;
  uint64_t size = 0;
  WEIR_TRY(named(open_regular(path, "cannot be read", file, size), path));
  if (size > most)
    return in_file(fail(WEIR_ERR_IO, "%llu bytes, at most %zu", static_cast<unsigned long long>(size), most), path);
  FileBytes bytes;  // frees again, whatever happens
  void* data = mmap(nullptr, static_cast<size_t>(size), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return in_file(io_error("has no room in memory", errno), path);
  bytes.data_ = data;
  bytes.size_ = static_cast<size_t>(size);
  OpenProgress nobody;
  WEIR_TRY(named(bytes.read_all(file.number, nobody), path));
  swap(bytes);
  return {};
}

Status FileBytes::read(const char* path, std::pmr::memory_resource* memory, OpenProgress& progress) {
  close();
  Descriptor file;
  uint64_t size = 0;
  WEIR_TRY(named(open_regular(path, "cannot be read", file, size), path));
  FileBytes copy;  // frees again, whatever happens
  try {
    copy.data_ = memory->allocate(static_cast<size_t>(size), kCopyAlignment);
  } catch (const std::bad_alloc&) {
    return in_file(fail(WEIR_ERR_OUT_OF_MEMORY, "%llu bytes for a copy of the file could not be allocated%s",
                        static_cast<unsigned long long>(size), HostMemory::thread_refusal().why),
                   path);
  }
  copy.memory_ = memory;
  copy.size_ = static_cast<size_t>(size);
  WEIR_TRY(named(copy.read_all(file.number, progress), path));
  swap(copy);
  return {};
}

// Fills the block with what the file has, which must be as much as the block has room for.
Status FileBytes::read_all(int file, OpenProgress& progress) {
  const auto size = static_cast<unsigned long long>(size_);
  progress.set_total(size_);
  WEIR_TRY(progress.tell(0));
  for (size_t at = 0; at < size_;) {
    const size_t end = std::min(size_, at + kProgressBytes);
    while (at < end) {
      const ssize_t n = pread(file, static_cast<char*>(data_) + at, end - at, static_cast<off_t>(at));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return io_error("cannot be read", errno);
      if (n == 0) return fail(WEIR_ERR_IO, "the file had %llu bytes and ended at byte %zu while it was read", size, at);
      at += static_cast<size_t>(n);
    }
    WEIR_TRY(progress.tell(at));
  }
  struct stat info;
  if (fstat(file, &info) != 0) return io_error("cannot be examined", errno);
  if (info.st_size < 0 || static_cast<size_t>(info.st_size) != size_) {
    return fail(WEIR_ERR_IO, "the file's size changed from %llu to %lld bytes while it was read", size,
                static_cast<long long>(info.st_size));
  }
  return {};
}

void FileBytes::close() {
  if (memory_ != nullptr) {
    memory_->deallocate(data_, size_, kCopyAlignment);
  } else if (data_ != nullptr) {
    munmap(data_, size_);
  }
  data_ = nullptr;
  size_ = 0;
  memory_ = nullptr;
}

void FileBytes::will_need() const {
  if (data_ != nullptr && memory_ == nullptr) (void)madvise(data_, size_, MADV_WILLNEED);
}

void FileBytes::swap(FileBytes& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(memory_, other.memory_);
}

}  // namespace weir
