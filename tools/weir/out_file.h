// The files that the program writes, all of them. A path is tried when the object is made, before any work is done for
// it; a failed command leaves nothing behind, and what was there as it was.
// - A regular file, or one that is not there yet, is written beside its place and takes it when it is complete. Its
//   permissions are kept, and its owner where that is allowed. It has no name until then where the file system can do
//   that, so that even a killed program leaves nothing.
//   Where a file may be written but not replaced, it is written in its place.
// - A symbolic link is followed, also to a file that is not there yet.
// - What is anything else (a pipe, a device) is opened and written; a pipe waits here for its reader.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace weir_cli {

class OutFile {
 public:
  enum Kind {
    kPublic,       // a new file has the permissions that the user's mask leaves
    kPrivate,      // a new file is readable by the user alone
    kPrivateEntry  // the same, and whatever has the name is replaced, never followed or opened
  };

  // `what` begins messages, such as "cannot write". Throws std::runtime_error naming the path and the system's reason.
  explicit OutFile(std::string path, Kind kind = kPublic, std::string what = "cannot write");
  ~OutFile();
  OutFile(const OutFile&) = delete;
  OutFile& operator=(const OutFile&) = delete;

  // Both throw as the constructor does. Without a commit nothing was written, except to a pipe or a device.
  void write(const void* bytes, uint64_t n_bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  void commit();

  const std::string& path() const { return path_; }

 private:
  void open_regular(bool exists);
  void open_existing();
  int open_beside();  // an error of the system, or 0
  int make_named();   // the same
  void give_name();
  [[noreturn]] void fail(int error) const;

  std::string path_, what_;
  Kind kind_;
  std::string target_;     // path_ behind its links
  std::string temporary_;  // the name to be renamed to target_; "": none yet
  int handle_ = -1;
  bool beside_ = false;       // renamed by commit()
  bool to_be_named_ = false;  // the file system has no files without a name: the first write makes the file
};

// A whole file at once.
void write_text_file(const std::string& path, std::string_view text);

// Throws as OutFile does where `path` could not be written; for files that are written much later. Opens no pipe.
void try_out_file(const std::string& path);

}  // namespace weir_cli
