// Writing and reading files of saved sessions; see session_file.h.
#include "session_file.h"

#include <fcntl.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace weir_cli {
namespace {

// An open file, and the system's reason when it failed.
struct File {
  int handle = -1;
  int error = 0;
  ~File() {
    if (handle >= 0) ::close(handle);
  }
};

weir_status write_all(void* user, const weir_write_info* info) {
  auto& file = *static_cast<File*>(user);
  const auto* bytes = static_cast<const char*>(info->data);
  for (uint64_t done = 0; done < info->n_bytes;) {
    const ssize_t n = ::write(file.handle, bytes + done, info->n_bytes - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      file.error = n < 0 ? errno : EIO;
      return WEIR_ERR_IO;
    }
    done += static_cast<uint64_t>(n);
  }
  return WEIR_OK;
}

weir_status read_some(void* user, const weir_read_info* info, uint64_t* n_read) {
  auto& file = *static_cast<File*>(user);
  ssize_t n = 0;
  do {
    n = ::read(file.handle, info->data, info->n_bytes);
  } while (n < 0 && errno == EINTR);
  if (n < 0) {
    file.error = errno;
    return WEIR_ERR_IO;
  }
  *n_read = static_cast<uint64_t>(n);
  return WEIR_OK;
}

[[noreturn]] void fail(const char* what, const std::string& path, int error) {
  throw std::runtime_error(std::string(what) + " " + path + ": " + std::strerror(error));
}

// A file without its name yet: removed again unless it was renamed.
struct Temporary {
  std::vector<char> name;
  ~Temporary() {
    if (!name.empty()) ::unlink(name.data());
  }
};

}  // namespace

void add_saved_flags(CLI::App& app, SavedFlags& flags) {
  app.add_option("--save", flags.save, "Write the conversation to FILE at the end, so that --resume can go on with it")
      ->type_name("FILE");
  app.add_option(
         "--resume", flags.resume,
         "Go on with a conversation of --save, with the same model, policy, budget and context; its sampling is "
         "kept unless it is given")
      ->type_name("FILE");
}

void check_saved_flags(const SavedFlags& flags, const std::string& system) {
  if (!flags.resume.empty() && !system.empty())
    throw UsageError("--system: the conversation that --resume goes on with has begun already");
}

void save_session(weir_session* session, const std::string& path) {
  constexpr char kWhat[] = "cannot save the session to";
  const std::string pattern = path + ".XXXXXX";
  Temporary temporary;
  std::vector<char> name(pattern.c_str(), pattern.c_str() + pattern.size() + 1);
  File file;
  file.handle = ::mkstemp(name.data());  // mode 0600
  if (file.handle < 0) fail(kWhat, path, errno);
  temporary.name = name;
  const weir_status status = weir_session_save(session, write_all, &file);
  if (file.error != 0) fail(kWhat, path, file.error);
  check(status, std::string(kWhat) + " " + path);
  if (::fsync(file.handle) != 0 && errno != EINVAL) fail(kWhat, path, errno);
  if (::rename(name.data(), path.c_str()) != 0) fail(kWhat, path, errno);
  temporary.name.clear();
}

void resume_session(weir_session* session, const std::string& path) {
  constexpr char kWhat[] = "cannot resume from";
  File file;
  file.handle = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file.handle < 0) fail(kWhat, path, errno);
  const weir_status status = weir_session_restore(session, read_some, &file);
  if (file.error != 0) fail(kWhat, path, file.error);
  check(status, std::string(kWhat) + " " + path);
}

}  // namespace weir_cli
