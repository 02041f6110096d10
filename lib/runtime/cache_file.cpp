#include "runtime/cache_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "core/clock.h"
#include "core/file_size_signal.h"
#include "core/system_error.h"
#include "kv/checksum.h"

namespace weir {
namespace {

constexpr char kMagic[8] = {'W', 'E', 'I', 'R', 'P', 'I', 'P', 'E'};
constexpr uint32_t kVersion = 1;
constexpr size_t kMaxFolderBytes = 1024;

struct Header {
  char magic[8] = {};
  uint32_t version = 0;
  uint32_t header_bytes = 0;
  uint64_t bytes = 0;  // behind the header
  CacheKey key;
  uint64_t checksum = 0;  // of the header up to here and of the bytes
};
static_assert(sizeof(Header) == 72 && offsetof(Header, checksum) == 64);

uint64_t checksum_of(const Header& h, const void* bytes) {
  Checksum sum;
  sum.add(&h, offsetof(Header, checksum));
  sum.add(bytes, h.bytes);
  return sum.value();
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  bool close() {
    const int fd = fd_;
    fd_ = -1;
    return fd < 0 || ::close(fd) == 0;
  }

 private:
  int fd_;
};

Status fail_at(weir_status code, const char* folder, const char* name, const char* what) {
  return fail(code, "cache of pipelines %.300s/%s: %s", folder, name, what);
}
Status fail_errno(const char* folder, const char* name, const char* doing) {
  return fail(WEIR_ERR_IO, "cache of pipelines %.300s/%s: %s: %s", folder, name, doing, SystemErrorText(errno).get());
}

// Whether what is open may be trusted; null, or why not.
const char* distrust(int fd, bool is_folder, struct stat& s) {
  if (fstat(fd, &s) != 0) return "its owner cannot be asked for";
  if (is_folder ? !S_ISDIR(s.st_mode) : !S_ISREG(s.st_mode)) return is_folder ? "is no folder" : "is no regular file";
  if (s.st_uid != geteuid()) return is_folder ? "its folder belongs to another user" : "belongs to another user";
  if ((s.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return is_folder ? "others may write to its folder" : "others may write it";
  return nullptr;
}

// The folder may be a link: what it leads to is looked at as any other folder, and the link must be the user's own, or
// the system's.
int open_folder(const char* folder) { return open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC); }
const char* distrust_link(const char* folder) {
  struct stat s;
  if (lstat(folder, &s) != 0 || !S_ISLNK(s.st_mode) || s.st_uid == geteuid() || s.st_uid == 0) return nullptr;
  return "its folder is a link of another user";
}

bool read_all(int fd, void* to, uint64_t n) {
  auto* at = static_cast<std::byte*>(to);
  while (n > 0) {
    const ssize_t got = ::read(fd, at, n);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    n -= static_cast<uint64_t>(got);
  }
  return true;
}

bool write_all(int fd, const void* from, uint64_t n) {
  const auto* at = static_cast<const std::byte*>(from);
  while (n > 0) {
    const ssize_t put = ::write(fd, at, n);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    at += put;
    n -= static_cast<uint64_t>(put);
  }
  return true;
}

// `folder` and what is missing above it.
bool make_folders(const char* folder) {
  char path[kMaxFolderBytes + 1];
  const size_t n = std::strlen(folder);
  if (n > kMaxFolderBytes) {
    errno = ENAMETOOLONG;
    return false;
  }
  std::memcpy(path, folder, n + 1);
  for (size_t i = 1; i <= n; ++i) {
    if (path[i] != '/' && path[i] != '\0') continue;
    const char end = path[i];
    path[i] = '\0';
    if (mkdir(path, S_IRWXU) != 0 && errno != EEXIST) {
      // Where folders may be looked at, but not made.
      struct stat s;
      const int error = errno;
      if (stat(path, &s) != 0 || !S_ISDIR(s.st_mode)) {
        errno = error;
        return false;
      }
    }
    path[i] = end;
  }
  return true;
}

}  // namespace

Status CacheBytes::take(uint64_t n) {
  release();
  void* const got = mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (got == MAP_FAILED)
    return fail(WEIR_ERR_OUT_OF_MEMORY, "cache of pipelines: %llu bytes", static_cast<unsigned long long>(n));
  data_ = static_cast<std::byte*>(got);
  size_ = taken_ = n;
  return {};
}

void CacheBytes::release() {
  if (data_ != nullptr) munmap(data_, taken_);
  data_ = nullptr;
  size_ = taken_ = 0;
}

Status read_cache_file(const char* folder, const char* name, const CacheKey& key, CacheBytes& out) {
  out.release();
  const Descriptor in(open_folder(folder));
  if (!in.is_open()) return errno == ENOENT ? Status() : fail_errno(folder, name, "opening its folder");
  struct stat s;
  if (const char* why = distrust_link(folder)) return fail_at(WEIR_ERR_IO, folder, name, why);
  if (const char* why = distrust(in.get(), true, s)) return fail_at(WEIR_ERR_IO, folder, name, why);
  // A FIFO must not be waited for.
  const Descriptor file(openat(in.get(), name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file.is_open()) {
    if (errno == ENOENT) return {};
    return errno == ELOOP ? fail_at(WEIR_ERR_IO, folder, name, "is a link") : fail_errno(folder, name, "opening it");
  }
  if (const char* why = distrust(file.get(), false, s)) return fail_at(WEIR_ERR_IO, folder, name, why);
  Header h;
  const auto size = static_cast<uint64_t>(s.st_size);
  if (size < sizeof(h) || size - sizeof(h) > kMaxCacheBytes || !read_all(file.get(), &h, sizeof(h)) ||
      std::memcmp(h.magic, kMagic, sizeof(kMagic)) != 0)
    return fail_at(WEIR_ERR_FORMAT, folder, name, "is no such file");
  if (h.version != kVersion || h.header_bytes != sizeof(h) || h.key != key)
    return fail_at(WEIR_ERR_NOT_FOUND, folder, name, "is of another driver or version, and will be written anew");
  if (h.bytes == 0 || h.bytes != size - sizeof(h)) return fail_at(WEIR_ERR_FORMAT, folder, name, "is not whole");
  WEIR_TRY(out.take(h.bytes));
  if (!read_all(file.get(), out.data(), h.bytes) || checksum_of(h, out.data()) != h.checksum) {
    out.release();
    return fail_at(WEIR_ERR_FORMAT, folder, name, "is damaged");
  }
  return {};
}

Status write_cache_file(const char* folder, const char* name, const CacheKey& key, const void* bytes, uint64_t n) {
  if (n == 0 || n > kMaxCacheBytes) return fail_at(WEIR_ERR_IO, folder, name, "would be too large");
  if (!make_folders(folder)) return fail_errno(folder, name, "making its folder");
  const Descriptor in(open_folder(folder));
  if (!in.is_open()) return fail_errno(folder, name, "opening its folder");
  struct stat s;
  if (const char* why = distrust_link(folder)) return fail_at(WEIR_ERR_IO, folder, name, why);
  if (const char* why = distrust(in.get(), true, s)) return fail_at(WEIR_ERR_IO, folder, name, why);
  Header h;
  std::memcpy(h.magic, kMagic, sizeof(kMagic));
  h.version = kVersion;
  h.header_bytes = sizeof(h);
  h.bytes = n;
  h.key = key;
  h.checksum = checksum_of(h, bytes);
  // No other process and no other thread has this name.
  char part[128];
  std::snprintf(part, sizeof(part), ".%.60s.%ld-%llx", name, static_cast<long>(getpid()),
                static_cast<unsigned long long>(now_ns()));
  const FileSizeSignal none;
  Descriptor file(openat(in.get(), part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR));
  if (!file.is_open()) return fail_errno(folder, name, "making a new one");
  bool is_written = write_all(file.get(), &h, sizeof(h)) && write_all(file.get(), bytes, n);
  int error = is_written ? 0 : errno;
  if (!file.close() && is_written) {
    is_written = false;
    error = errno;
  }
  if (is_written && renameat(in.get(), part, in.get(), name) == 0) return {};
  if (is_written) error = errno;
  (void)unlinkat(in.get(), part, 0);
  errno = error;
  return fail_errno(folder, name, "writing it");
}

}  // namespace weir
