// The current folder, and what is mapped where.
#include "core/paths.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstring>

namespace weir {
namespace {

// /proc/self/maps, line by line: "first-end permissions offset device inode   path".
class Mappings {
 public:
  Mappings() : file_(::open("/proc/self/maps", O_RDONLY | O_CLOEXEC)) {}
  ~Mappings() {
    if (file_ >= 0) ::close(file_);
  }
  Mappings(const Mappings&) = delete;
  Mappings& operator=(const Mappings&) = delete;

  // The path of the file that is mapped at `address`, as the system names it today; null: there is none.
  const char* path_at(uintptr_t address) {
    while (next_line()) {
      uintptr_t first = 0, end = 0;
      if (std::sscanf(line_, "%" SCNxPTR "-%" SCNxPTR, &first, &end) != 2) return nullptr;
      if (address >= first && address < end) return std::strchr(line_, '/');
    }
    return nullptr;
  }

 private:
  // A line that is too long is cut: it is not found then, or is no path that fits anywhere.
  bool next_line() {
    size_t n = 0;
    for (char c = 0; next(c);) {
      if (c == '\n') {
        line_[n] = '\0';
        return true;
      }
      if (n + 1 < sizeof(line_)) line_[n++] = c;
    }
    return false;
  }
  bool next(char& c) {
    while (at_ == n_) {
      const ssize_t n = file_ < 0 ? 0 : ::read(file_, buffer_, sizeof(buffer_));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      at_ = 0;
      n_ = static_cast<size_t>(n);
    }
    c = buffer_[at_++];
    return true;
  }

  int file_;
  size_t at_ = 0, n_ = 0;
  char buffer_[4096];
  char line_[4096 + 128];
};

Status copy_folder(const char* path, char* out, size_t size) {
  const auto n = static_cast<size_t>(std::strrchr(path, '/') - path) + 1;
  if (n >= size) return fail(WEIR_ERR_UNSUPPORTED, "the folder of this library has %zu bytes: too many", n);
  std::memcpy(out, path, n);
  out[n] = '\0';
  return {};
}

}  // namespace

Status absolute_path(const char* what, const char* path, char* out, size_t size) {
  const size_t n = std::strlen(path);
  size_t n_before = 0;
  if (path[0] != '/') {
    // Some systems name a folder that cannot be reached "(unreachable)/...".
    if (size < 2 || ::getcwd(out, size - 1) == nullptr || out[0] != '/') {
      if (size < 2 || errno == ERANGE)
        return fail(WEIR_ERR_INVALID_ARG, "%s: too long with the current folder before it", what);
      return fail(WEIR_ERR_IO, "%s: relative, and the current folder has no path any more", what);
    }
    n_before = std::strlen(out);
    if (out[n_before - 1] != '/') out[n_before++] = '/';
  }
  if (n_before + n >= size) {
    return fail(WEIR_ERR_INVALID_ARG, "%s: %zu bytes%s, at most %zu", what, n_before + n,
                n_before == 0 ? "" : " with the current folder", size - 1);
  }
  std::memcpy(out + n_before, path, n + 1);
  return {};
}

Status folder_of_code(const void* address, char* out, size_t size) {
  out[0] = '\0';
  // Not what the dynamic linker says: that is what it was given, of a program its first argument, of a library any
  // path, perhaps relative to a folder that is another one now.
  Mappings mappings;
  const char* path = mappings.path_at(reinterpret_cast<uintptr_t>(address));
  Dl_info info = {};
  if (path == nullptr && dladdr(address, &info) != 0) path = info.dli_fname;  // where /proc is not mounted
  if (path == nullptr || path[0] != '/')
    return fail(WEIR_ERR_UNSUPPORTED, "the folder of this library is not known; set backend_dir");
  return copy_folder(path, out, size);
}

}  // namespace weir
