// A GGUF file with some of its keys taken out, renamed or added, and some tensors taken out or added, as a file of its
// own. Not a part of the library.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <utility>

#include "gguf/gguf.h"
#include "tests/gguf/gguf_writer.h"

namespace weir_test {

class ChangedFile {
 public:
  // What becomes of a key: "" takes it out.
  using Rename = std::function<std::string(std::string_view key)>;
  // Which tensors stay.
  using Keep = std::function<bool(std::string_view name)>;

  explicit ChangedFile(const std::string& from, GgufWriter writer = {}, const Rename& rename = nullptr,
                       const Keep& keep = nullptr) {
    weir::GgufFile file(std::pmr::new_delete_resource());
    if (!file.open(from.c_str()).ok()) std::abort();
    for (const weir::GgufValue& value : file.values()) {
      const std::string key = rename ? rename(value.key) : std::string(value.key);
      if (!key.empty()) writer.add_value(key, value);
    }
    for (const weir::GgufTensor& t : file.tensors()) {
      if (keep && !keep(t.name)) continue;
      const Bytes data(t.data, t.data + t.bytes);
      if (t.n_dims == 1) writer.add_tensor(t.name, {t.dims[0]}, t.type_id, data);
      if (t.n_dims == 2) writer.add_tensor(t.name, {t.dims[0], t.dims[1]}, t.type_id, data);
      if (t.n_dims == 3) writer.add_tensor(t.name, {t.dims[0], t.dims[1], t.dims[2]}, t.type_id, data);
    }
    write(writer.build());
  }
  explicit ChangedFile(const Bytes& bytes) { write(bytes); }
  ~ChangedFile() { std::filesystem::remove(path_); }
  ChangedFile(ChangedFile&& other) noexcept : path_(std::exchange(other.path_, "")) {}
  ChangedFile(const ChangedFile&) = delete;
  ChangedFile& operator=(const ChangedFile&) = delete;

  const char* path() const { return path_.c_str(); }

 private:
  void write(const Bytes& bytes) {
    path_ = (std::filesystem::temp_directory_path() / "weir_changed_XXXXXX").string();
    const int descriptor = mkstemp(path_.data());
    if (descriptor < 0) std::abort();
    close(descriptor);
    std::ofstream(path_, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }

  std::string path_;
};

}  // namespace weir_test
