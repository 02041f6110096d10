// Files that the program writes; see out_file.h.
#include "out_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

#include "terminal.h"

namespace weir_cli {
namespace {

constexpr int kMaxLinks = 40;  // as the kernel

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

std::string self_path(int handle) { return "/proc/self/fd/" + std::to_string(handle); }

// What a chain of links at the end of `path` leads to, whether it is there or not; errno tells why not.
bool follow_links(std::string& path) {
  for (int i = 0; i < kMaxLinks; ++i) {
    std::vector<char> link(PATH_MAX);
    const ssize_t n = ::readlink(path.c_str(), link.data(), link.size());
    if (n < 0) return errno == EINVAL || errno == ENOENT;
    std::string to(link.data(), static_cast<size_t>(n));
    path = to.starts_with('/') ? to : folder_of(path) + "/" + to;
  }
  errno = ELOOP;
  return false;
}

// A pipe whose reader has gone is an error of its file, not the end of the program.
class IgnorePipeSignal {
 public:
  IgnorePipeSignal() {
    struct sigaction ignore {};
    ignore.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &ignore, &before_);
  }
  ~IgnorePipeSignal() { sigaction(SIGPIPE, &before_, nullptr); }
  IgnorePipeSignal(const IgnorePipeSignal&) = delete;
  IgnorePipeSignal& operator=(const IgnorePipeSignal&) = delete;

 private:
  struct sigaction before_ {};
};

// Whether rename() will do: not in a folder with the sticky bit where neither file nor folder are the user's, not for a
// file that is mounted by itself, and not where a link of the system's own leads to a file without that name.
bool may_be_replaced(const std::string& path, const std::string& target) {
  struct stat by_path {
  }, file{}, folder{};
  if (::stat(path.c_str(), &by_path) != 0 || ::stat(target.c_str(), &file) != 0 ||
      ::stat(folder_of(target).c_str(), &folder) != 0)
    return false;
  if (by_path.st_dev != file.st_dev || by_path.st_ino != file.st_ino) return false;
  const uid_t user = ::geteuid();
  if ((folder.st_mode & S_ISVTX) != 0 && user != 0 && user != file.st_uid && user != folder.st_uid) return false;
  struct statx more {};
  return ::statx(AT_FDCWD, target.c_str(), 0, STATX_BASIC_STATS, &more) != 0 ||
         (more.stx_attributes & STATX_ATTR_MOUNT_ROOT) == 0;
}

mode_t mode_of_new_files(OutFile::Kind kind) {
  if (kind != OutFile::kPublic) return 0600;
  const mode_t mask = ::umask(0);
  ::umask(mask);
  return 0666 & ~mask;
}

}  // namespace

OutFile::OutFile(std::string path, Kind kind, std::string what)
    : path_(std::move(path)), what_(std::move(what)), kind_(kind), target_(path_) {
  if (path_.empty()) fail(ENOENT);
  struct stat info {};
  const bool follows = kind_ != kPrivateEntry;
  const bool exists = (follows ? ::stat(path_.c_str(), &info) : ::lstat(path_.c_str(), &info)) == 0;
  if (!exists && errno != ENOENT) fail(errno);
  if (exists && S_ISDIR(info.st_mode)) fail(EISDIR);
  if (!follows) {
    if (const int error = open_beside(); error != 0) fail(error);
  } else if (exists && !S_ISREG(info.st_mode)) {
    open_existing();
  } else {
    open_regular(exists);
  }
}

void OutFile::open_regular(bool exists) {
  if (!follow_links(target_)) fail(errno);
  if (exists && ::access(path_.c_str(), W_OK) != 0) fail(errno);  // replacing would not ask
  if (!exists && target_.ends_with('/')) fail(EISDIR);
  if (exists && !may_be_replaced(path_, target_)) {
    open_existing();
    return;
  }
  const int error = open_beside();
  if (error == 0) return;
  if (!exists || (error != EACCES && error != EROFS && error != EPERM)) fail(error);
  open_existing();
}

OutFile::~OutFile() {
  if (handle_ >= 0) ::close(handle_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void OutFile::fail(int error) const { throw std::runtime_error(what_ + " " + path_ + ": " + std::strerror(error)); }

void OutFile::open_existing() {
  do {
    handle_ = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY);
  } while (handle_ < 0 && errno == EINTR && interrupt_count() == 0);
  if (handle_ < 0) fail(errno);
}

int OutFile::open_beside() {
  beside_ = true;
  handle_ = ::open(folder_of(target_).c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
  if (handle_ >= 0) {
    if (::access(self_path(handle_).c_str(), F_OK) == 0) return 0;
    ::close(std::exchange(handle_, -1));  // without /proc it would never get a name
  }
  if (const int error = make_named(); error != 0) return error;
  ::close(std::exchange(handle_, -1));
  ::unlink(temporary_.c_str());
  temporary_.clear();
  to_be_named_ = true;
  return 0;
}

int OutFile::make_named() {
  std::string name = folder_of(target_) + "/.weir-XXXXXX";
  handle_ = ::mkostemp(name.data(), O_CLOEXEC);  // mode 0600
  if (handle_ < 0) return errno;
  temporary_ = name;
  return 0;
}

void OutFile::write(const void* bytes, uint64_t n_bytes) {
  if (std::exchange(to_be_named_, false)) {
    if (const int error = make_named(); error != 0) fail(error);
  }
  const IgnorePipeSignal ignored;
  const auto* at = static_cast<const char*>(bytes);
  for (uint64_t left = n_bytes; left > 0;) {
    const ssize_t n = ::write(handle_, at, left);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail(n < 0 ? errno : EIO);
    at += n;
    left -= static_cast<uint64_t>(n);
  }
}

void OutFile::commit() {
  if (std::exchange(to_be_named_, false)) {
    if (const int error = make_named(); error != 0) fail(error);
  }
  struct stat info {};
  if (!beside_) {
    // Where a regular file is written in its place, what was longer goes.
    const off_t end = ::lseek(handle_, 0, SEEK_CUR);
    if (::fstat(handle_, &info) == 0 && S_ISREG(info.st_mode) && (end < 0 || ::ftruncate(handle_, end) != 0))
      fail(errno);
    if (::close(std::exchange(handle_, -1)) != 0) fail(errno);
    return;
  }
  const bool replaces = kind_ != kPrivateEntry && ::stat(target_.c_str(), &info) == 0;
  // The owner is the system's to give, so that it may be refused; changing it clears bits of the mode, which is second.
  if (replaces && (info.st_uid != ::geteuid() || info.st_gid != ::getegid()) &&
      ::fchown(handle_, info.st_uid, info.st_gid) != 0 && ::fchown(handle_, static_cast<uid_t>(-1), info.st_gid) != 0)
    info.st_mode &= ~static_cast<mode_t>(S_ISUID | S_ISGID);
  if (::fchmod(handle_, replaces ? info.st_mode & 07777 : mode_of_new_files(kind_)) != 0) fail(errno);
  // A conversation must outlive a power cut; some file systems tell only here that the disk is full.
  if (kind_ == kPrivate && ::fsync(handle_) != 0 && errno != EINVAL && errno != ENOTSUP) fail(errno);
  if (temporary_.empty()) give_name();
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail(errno);
  temporary_.clear();
  if (::close(std::exchange(handle_, -1)) != 0) fail(errno);
}

// A file without a name gets one beside its place: rename() replaces what is there, a new link would not.
void OutFile::give_name() {
  const std::string self = self_path(handle_),
                    start = folder_of(target_) + "/.weir-" + std::to_string(::getpid()) + "-";
  for (int attempt = 0; attempt < 100; ++attempt) {
    const std::string name = start + std::to_string(attempt);
    if (::linkat(AT_FDCWD, self.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0) {
      temporary_ = name;
      return;
    }
    if (errno != EEXIST) fail(errno);
  }
  fail(EEXIST);
}

void write_text_file(const std::string& path, std::string_view text) {
  OutFile file(path);
  file.write(text);
  file.commit();
}

void try_out_file(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode)) {
    if (::access(path.c_str(), W_OK) == 0) return;
    throw std::runtime_error("cannot write " + path + ": " + std::strerror(errno));
  }
  const OutFile file(path);
}

}  // namespace weir_cli
