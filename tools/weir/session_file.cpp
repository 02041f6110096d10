// Writing and reading files of saved sessions; see session_file.h.
#include "session_file.h"

#include <fcntl.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <cerrno>
#include <cstring>
#include <exception>

namespace weir_cli {
namespace {

constexpr char kCannotSave[] = "cannot save the session to";

// An open file, and the system's reason when it failed.
struct File {
  int handle = -1;
  int error = 0;
  ~File() {
    if (handle >= 0) ::close(handle);
  }
};

// What failed in the file waits here until the library's call has returned.
struct Writer {
  OutFile& file;
  std::exception_ptr thrown = nullptr;
};

weir_status write_all(void* user, const weir_write_info* info) {
  auto& writer = *static_cast<Writer*>(user);
  try {
    writer.file.write(info->data, info->n_bytes);
    return WEIR_OK;
  } catch (...) {
    writer.thrown = std::current_exception();
    return WEIR_ERR_IO;
  }
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

}  // namespace

void add_saved_flags(CLI::App& app, SavedFlags& flags) {
  app.add_option("--save", flags.save, "Write the conversation to FILE at the end, so that --resume can go on with it")
      ->check(some_path())
      ->type_name("FILE");
  app.add_option(
         "--resume", flags.resume,
         "Go on with a conversation of --save, with the same model, policy, budget and context; its sampling is "
         "kept unless it is given")
      ->check(some_path())
      ->type_name("FILE");
}

void check_saved_flags(const SavedFlags& flags, const std::string& system) {
  if (!flags.resume.empty() && !system.empty())
    throw UsageError("--system: the conversation that --resume goes on with has begun already");
}

std::unique_ptr<OutFile> open_save_file(const SavedFlags& flags) {
  return flags.save.empty() ? nullptr : std::make_unique<OutFile>(flags.save, OutFile::kPrivate, kCannotSave);
}

void save_session(weir_session* session, OutFile& file) {
  Writer writer{file};
  const weir_status status = weir_session_save(session, write_all, &writer);
  if (writer.thrown) std::rethrow_exception(writer.thrown);
  check(status, std::string(kCannotSave) + " " + file.path());
  file.commit();
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
