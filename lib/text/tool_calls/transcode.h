// Reads a value as models write the arguments of calls, in JSON or in what resembles it, and writes it as JSON.
#pragma once

#include <memory_resource>
#include <string>
#include <string_view>

namespace weir {

enum class ValueStyle : uint8_t {
  kJson,    // but line ends in texts are taken for what they are
  kPython,  // 'text', True, False, None, tuples, a comma at the end
  kGemma,   // keys without quotes, <|"|>text<|"|>
};

// Text that is read from the front.
class CallReader {
 public:
  explicit CallReader(std::string_view text) : left(text) {}

  void skip_space();
  bool take(std::string_view text);  // if it comes next
  // What comes before the next `text`, which is passed. False: it does not come.
  bool take_until(std::string_view text, std::string_view& before);
  // A name, up to white space or something that no name has; not empty.
  bool take_name(std::string_view& name);
  bool is_at_end();  // but for white space

  // One value, appended to `out` as JSON. False where there is none; `out` may then have a part of it.
  bool take_value(ValueStyle style, std::pmr::string& out, int depth = 0);

  std::string_view left;

 private:
  bool take_quoted(char quote, bool is_python, std::pmr::string& out);
  bool take_list(ValueStyle style, char end, std::pmr::string& out, int depth);
  bool take_object(ValueStyle style, std::pmr::string& out, int depth);
  bool take_number(std::pmr::string& out);
};

void append_json_text(std::string_view text, std::pmr::string& out);  // with quotes
// The text that a JSON text (with quotes) stands for.
void append_plain(std::string_view json_text, std::pmr::string& out);
std::string_view without_space_around(std::string_view text);

}  // namespace weir
