// Standard output that does not lose errors: a full disk or a closed pipe ends the command with what the system says.
// And text of others, that is of files and models, which must not steer the terminal that it is shown on.
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

// Text of others on one line: control characters (C0, DEL, C1), line and paragraph separators and what changes the
// direction of text become \x1b or \u202e, as in messages of the library, and what is not UTF-8 becomes U+FFFD.
std::string plain_line(std::string_view text);
// The same for several lines: line ends and tabs stay.
std::string plain_text(std::string_view text);
// The same of JSON, whose strings have what a terminal obeys as \u009b. Its own line ends stay.
std::string plain_json(std::string_view json);

// What a model says, to stdout: on a terminal as plain_text, anywhere else as it is.
void put_answer(std::string_view text);

// "weir: <message>" on stderr, as plain_line.
void tell(std::string_view message);

}  // namespace weir_cli
