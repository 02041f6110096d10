// Mapping by POSIX calls. The descriptor is closed at once; the mapping keeps the file's contents reachable.
#include "gguf/file_map.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

namespace weir {
namespace {

constexpr auto kMaxMapBytes = static_cast<uint64_t>(std::numeric_limits<ptrdiff_t>::max());
constexpr size_t kShownPathBytes = 400;

// strerror_r comes in two forms, which differ in what they return.
[[maybe_unused]] const char* error_text(const char* result, const char*) { return result; }
[[maybe_unused]] const char* error_text(int result, const char* buffer) {
  return result == 0 ? buffer : "unknown error";
}

Status io_error(const char* path, const char* what, int error) {
  char buffer[128] = "";
  return in_file(fail(WEIR_ERR_IO, "%s: %s", what, error_text(strerror_r(error, buffer, sizeof(buffer)), buffer)),
                 path);
}

struct Descriptor {
  int number = -1;
  ~Descriptor() {
    if (number >= 0) ::close(number);
  }
};

}  // namespace

Status in_file(Status status, const char* path) {
  const size_t n = std::strlen(path);
  const char* shown = n <= kShownPathBytes ? path : path + n - kShownPathBytes;
  while ((static_cast<unsigned char>(*shown) & 0xC0) == 0x80) ++shown;  // to the start of a character
  return fail(status.code(), "%s%s: %s", n <= kShownPathBytes ? "" : "...", shown, last_error_text());
}

Status FileMap::open(const char* path) {
  close();
  // Without O_NONBLOCK, opening a named pipe would wait for a writer.
  const Descriptor file{::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.number < 0) return io_error(path, "cannot be opened", errno);
  struct stat info;
  if (fstat(file.number, &info) != 0) return io_error(path, "cannot be examined", errno);
  if (S_ISDIR(info.st_mode)) return io_error(path, "cannot be mapped", EISDIR);
  if (!S_ISREG(info.st_mode)) return in_file(fail(WEIR_ERR_IO, "not a regular file"), path);
  if (info.st_size <= 0) return in_file(fail(WEIR_ERR_IO, "the file is empty"), path);
  const auto size = static_cast<uint64_t>(info.st_size);
  if (size > kMaxMapBytes) return io_error(path, "cannot be mapped", EFBIG);
  void* data = mmap(nullptr, static_cast<size_t>(size), PROT_READ, MAP_PRIVATE, file.number, 0);
  if (data == MAP_FAILED) return io_error(path, "cannot be mapped", errno);
  data_ = data;
  size_ = static_cast<size_t>(size);
  return {};
}

void FileMap::close() {
  if (data_ != nullptr) munmap(data_, size_);
  data_ = nullptr;
  size_ = 0;
}

void FileMap::will_need() const {
  if (data_ != nullptr) (void)madvise(data_, size_, MADV_WILLNEED);
}

void FileMap::swap(FileMap& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
}

}  // namespace weir
