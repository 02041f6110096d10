// The system's words for an error number.
#pragma once

#include <cstring>

namespace weir {

class SystemErrorText {
 public:
  explicit SystemErrorText(int error) : text_(chosen(strerror_r(error, buffer_, sizeof(buffer_)), buffer_)) {}
  SystemErrorText(const SystemErrorText&) = delete;
  SystemErrorText& operator=(const SystemErrorText&) = delete;
  const char* get() const { return text_; }

 private:
  // strerror_r comes in two forms, which differ in what they return.
  [[maybe_unused]] static const char* chosen(const char* result, const char*) { return result; }
  [[maybe_unused]] static const char* chosen(int result, const char* buffer) {
    return result == 0 ? buffer : "unknown error";
  }
  char buffer_[128] = "";
  const char* text_;
};

}  // namespace weir
