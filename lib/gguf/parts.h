// How the files of a model in several parts are called: NAME-00001-of-00003.gguf.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <string>
#include <string_view>

namespace weir {

inline constexpr uint32_t kMaxParts = 4096;

class PartName {
 public:
  PartName(const char* path, std::pmr::memory_resource* memory);

  // Whether the path is called so, and then which part it is, from 0, and how many there are.
  bool is_part() const { return count_ > 1; }
  uint32_t number() const { return number_; }
  uint32_t count() const { return count_; }
  // The path of part `number`, valid until the next call.
  const char* path(uint32_t number);
  // Its name without folders, likewise.
  const char* name(uint32_t number);
  // Bytes of the part's file, 0 where there is none.
  uint64_t bytes(uint32_t number);

 private:
  std::pmr::string path_;
  size_t n_prefix_ = 0;  // of path_, up to the number
  uint32_t number_ = 0, count_ = 0;
};

}  // namespace weir
