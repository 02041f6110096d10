// What was taken for granted while a file was read: lines about keys that are missing or of no use here. A few at most,
// whatever the file has; the rest is counted. Warnings take the place of defaults where there is no other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <string>
#include <vector>

namespace weir {

class Notes {
 public:
  enum class Kind : uint8_t {
    kWarning,  // answers may be wrong by it
    kDefault,  // the usual value of a key that writers often leave out
    kUnused,   // a part of the file that nothing here reads
  };

  explicit Notes(std::pmr::memory_resource* memory) : text_(memory), notes_(memory) {}

  void warn(const char* format, ...) __attribute__((format(printf, 2, 3)));
  void take_default(const char* format, ...) __attribute__((format(printf, 2, 3)));
  void leave(const char* format, ...) __attribute__((format(printf, 2, 3)));

  size_t size() const { return notes_.size(); }
  Kind kind(size_t i) const { return notes_[i].kind; }
  const char* text(size_t i) const { return text_.data() + notes_[i].at; }
  uint64_t n_left_out() const { return n_left_out_; }
  uint64_t n_all() const { return notes_.size() + n_left_out_; }

 private:
  static constexpr size_t kMax = 32;
  struct Note {
    Kind kind;
    uint32_t at;  // in text_, NUL-terminated
  };

  void add(Kind kind, const char* format, __builtin_va_list args);

  std::pmr::string text_;
  std::pmr::vector<Note> notes_;
  uint64_t n_left_out_ = 0;
};

}  // namespace weir
