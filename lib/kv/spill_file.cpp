// The spill file's life, its chains of cells, and reads and writes that finish what they began.
#include "kv/spill_file.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstring>

#include "core/file_size_signal.h"

namespace weir {
namespace {

int open_file(const char* path, int flags, mode_t mode) { return ::open(path, flags, mode); }

int reserve(int fd, off_t offset, off_t bytes) {
  const FileSizeSignal blocked;
  return ::posix_fallocate(fd, offset, bytes);
}

ssize_t write_at(int fd, const void* data, size_t bytes, off_t offset) {
  const FileSizeSignal blocked;
  return ::pwrite(fd, data, bytes, offset);
}

const char* reason(int error) {
  switch (error) {
    case EEXIST:
      return "something is there already; the file must be new";
    case ENOENT:
      return "there is no such folder";
    case EACCES:
    case EPERM:
    case EROFS:
      return "it must not be written";
    case ENOSPC:
    case EDQUOT:
      return "the disk is full";
    case EFBIG:
      return "this process or the file system has no files of this size (ulimit -f)";
    default:
      return "the system refused";
  }
}

}  // namespace

const FileCalls kSystemFile = {open_file, ::unlink, reserve, ::pread, write_at};

SpillFile::~SpillFile() {
  if (fd_ >= 0) ::close(fd_);
}

Status SpillFile::open(const char* path, uint32_t n_cells, uint32_t* links, const FileCalls& calls) {
  calls_ = &calls;
  links_ = links;
  WEIR_TRY(create(path, uint64_t{n_cells} * kCellBytes));
  for (uint32_t i = 0; i < n_cells; ++i) links[i] = i + 1;
  first_free_ = 0;
  n_free_ = n_cells;
  return {};
}

Status SpillFile::create(const char* path, uint64_t bytes) {
  const auto failed = [&](const char* what, int error) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
    return fail(WEIR_ERR_IO, "spill file %s of %llu bytes: %s: %s (error %d)", path,
                static_cast<unsigned long long>(bytes), what, reason(error), error);
  };
  do {
    fd_ = calls_->open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  } while (fd_ < 0 && errno == EINTR);
  if (fd_ < 0) return failed("cannot be created", errno);
  // Without a name first: whatever happens from here on, nothing stays behind.
  if (calls_->unlink(path) != 0) return failed("its name cannot be removed", errno);
  int error = 0;
  do {
    error = calls_->allocate(fd_, 0, static_cast<off_t>(bytes));
  } while (error == EINTR);
  return error == 0 ? Status{} : failed("its room cannot be reserved", error);
}

void SpillFile::take(uint32_t n, uint32_t& first, uint32_t& last) {
  first = last = first_free_;
  for (uint32_t i = 1; i < n; ++i) last = links_[last];
  first_free_ = links_[last];
  n_free_ -= n;
}

void SpillFile::give_back(uint32_t n, uint32_t first, uint32_t last) {
  links_[last] = first_free_;
  first_free_ = first;
  n_free_ += n;
}

uint32_t SpillFile::runs(uint32_t first, uint32_t bytes, Run* out) const {
  uint32_t n = 0, cell = first;
  for (uint32_t left = bytes; left > 0; cell = links_[cell]) {
    const uint32_t part = left < kCellBytes ? left : kCellBytes;
    const uint64_t offset = uint64_t{cell} * kCellBytes;
    if (n > 0 && out[n - 1].offset + out[n - 1].bytes == offset) {
      out[n - 1].bytes += part;
    } else {
      out[n++] = {offset, part};
    }
    left -= part;
  }
  return n;
}

int SpillFile::write(const Run* runs, uint32_t n, const std::byte* data) const {
  for (uint32_t i = 0; i < n; ++i) {
    for (uint32_t done = 0; done < runs[i].bytes;) {
      const ssize_t part = calls_->write(fd_, data, runs[i].bytes - done, static_cast<off_t>(runs[i].offset + done));
      if (part < 0 && errno == EINTR) continue;
      if (part <= 0) return part < 0 ? errno : ENOSPC;
      done += static_cast<uint32_t>(part);
      data += part;
    }
  }
  return 0;
}

int SpillFile::read(const Run* runs, uint32_t n, std::byte* data) const {
  for (uint32_t i = 0; i < n; ++i) {
    for (uint32_t done = 0; done < runs[i].bytes;) {
      const ssize_t part = calls_->read(fd_, data, runs[i].bytes - done, static_cast<off_t>(runs[i].offset + done));
      if (part < 0 && errno == EINTR) continue;
      if (part <= 0) return part < 0 ? errno : EIO;  // the file's end: somebody cut it
      done += static_cast<uint32_t>(part);
      data += part;
    }
  }
  return 0;
}

}  // namespace weir
