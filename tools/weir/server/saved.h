// Conversations on the disk: files in one folder with names that the server made. No text of a request becomes part of
// a path.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/fields.h"
#include "server/pool.h"

namespace weir_server {

class SavedFolder {
 public:
  // Creates the folder if there is none. Throws std::runtime_error.
  explicit SavedFolder(std::string path);

  Json list() const;
  // Throw std::runtime_error, or Error of the library.
  std::string save(Pool::Lease& lease, const std::string& conversation, const std::string& title) const;
  // The conversation's name goes to the lease. False: there is no such file.
  bool restore(Pool::Lease& lease, const std::string& name) const;
  bool remove(const std::string& name) const;
  bool has(const std::string& name) const { return path_of(name).has_value(); }

 private:
  // The path of a name that save() made; none: it made no such name.
  std::optional<std::string> path_of(const std::string& name) const;

  std::string folder_;
};

}  // namespace weir_server
