// Lines "name=value" in a fixed buffer: what a session's policy came to be, and what a saved session belongs to.
// Nothing is allocated. Values are compared as text, and messages name the first that differs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/status.h"

namespace weir {

class NamedValues {
 public:
  static constexpr uint32_t kBytes = 2048;

  void clear() { n_bytes_ = 0, is_cut_ = false; }
  // Adds a line; a name may come twice.
  void add(const char* name, const char* format, ...) __attribute__((format(printf, 3, 4)));
  void add(const NamedValues& others);
  std::string_view text() const { return {text_, n_bytes_}; }
  bool is_cut() const { return is_cut_; }  // a line had no room

 private:
  void append(std::string_view text);

  char text_[kBytes];
  uint32_t n_bytes_ = 0;
  bool is_cut_ = false;
};

// WEIR_ERR_UNSUPPORTED naming the first line that differs, with both values.
Status compare_named_values(std::string_view in_file, std::string_view here);

}  // namespace weir
