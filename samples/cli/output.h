// Standard output that does not lose errors: a full disk or a closed pipe ends the command with what the system says.
#pragma once

#include <exception>
#include <string>
#include <string_view>

namespace weir_cli {

// Standard output cannot be written. No std::runtime_error, so that it is not taken for a failure of one conversation.
class OutputError : public std::exception {
 public:
  explicit OutputError(int error);
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

// To stdout; each throws OutputError. What was put may wait in a buffer until flush_output, which also finds errors of
// writes that went another way.
void put(std::string_view text);
void put_line(std::string_view text);  // and a line end
void put_format(const char* form, ...) __attribute__((format(printf, 1, 2)));
void flush_output();

}  // namespace weir_cli
