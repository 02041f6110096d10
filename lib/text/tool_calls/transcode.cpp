// Values of calls; see transcode.h.
#include "text/tool_calls/transcode.h"

#include <algorithm>

namespace weir {
namespace {

using std::string_view;

constexpr int kMaxDepth = 64;
constexpr string_view kGemmaQuote = "<|\"|>";

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

void append_char(char c, std::pmr::string& out) {
  constexpr string_view kDigits = "0123456789abcdef";
  constexpr string_view kShort = "\b\f\n\r\t\"\\", kLetters = "bfnrt\"\\";
  if (const size_t i = kShort.find(c); i != string_view::npos) {
    out.push_back('\\');
    out.push_back(kLetters[i]);
  } else if (static_cast<unsigned char>(c) < 0x20) {
    out.append("\\u00");
    out.push_back(kDigits[static_cast<unsigned char>(c) >> 4]);
    out.push_back(kDigits[static_cast<unsigned char>(c) & 15]);
  } else {
    out.push_back(c);
  }
}

// Four hexadecimal digits at the front.
bool read_code(string_view text, uint32_t& code) {
  code = 0;
  if (text.size() < 4) return false;
  for (const char c : text.substr(0, 4)) {
    if (!is_hex(c)) return false;
    code = code * 16 + static_cast<uint32_t>(is_digit(c) ? c - '0' : (c | 32) - 'a' + 10);
  }
  return true;
}

void append_utf8(uint32_t code, std::pmr::string& out) {
  const auto put = [&](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xC0 | code >> 6);
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12);
    put(0x80 | (code >> 6 & 63));
  } else {
    put(0xF0 | code >> 18);
    put(0x80 | (code >> 12 & 63));
    put(0x80 | (code >> 6 & 63));
  }
  put(0x80 | (code & 63));
}

}  // namespace

void append_json_text(string_view text, std::pmr::string& out) {
  out.push_back('"');
  for (const char c : text) append_char(c, out);
  out.push_back('"');
}

void append_plain(string_view json_text, std::pmr::string& out) {
  const string_view text = json_text.substr(1, json_text.size() - 2);
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      out.push_back(text[i]);
      continue;
    }
    const char c = text[++i];
    constexpr string_view kShort = "\b\f\n\r\t", kLetters = "bfnrt";
    if (const size_t known = kLetters.find(c); known != string_view::npos) {
      out.push_back(kShort[known]);
    } else if (c != 'u') {
      out.push_back(c);
    } else {
      uint32_t code = 0, low = 0;
      read_code(text.substr(i + 1), code);
      i += 4;
      const bool is_pair = code >= 0xD800 && code < 0xDC00 && text.substr(i + 1, 2) == "\\u" &&
                           read_code(text.substr(i + 3), low) && low >= 0xDC00 && low < 0xE000;
      if (is_pair) {
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
        i += 6;
      }
      append_utf8(code >= 0xD800 && code < 0xE000 ? 0xFFFD : code, out);
    }
  }
}

string_view without_space_around(string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

void CallReader::skip_space() {
  while (!left.empty() && is_space(left.front())) left.remove_prefix(1);
}

bool CallReader::take(string_view text) {
  if (!left.starts_with(text)) return false;
  left.remove_prefix(text.size());
  return true;
}

bool CallReader::take_until(string_view text, string_view& before) {
  const size_t at = left.find(text);
  if (at == string_view::npos) return false;
  before = left.substr(0, at);
  left.remove_prefix(at + text.size());
  return true;
}

bool CallReader::take_name(string_view& name) {
  size_t n = 0;
  while (n < left.size() && !is_space(left[n]) && string_view("<>\"'(){}[],=:").find(left[n]) == string_view::npos) ++n;
  name = left.substr(0, n);
  left.remove_prefix(n);
  return n != 0;
}

bool CallReader::is_at_end() {
  skip_space();
  return left.empty();
}

bool CallReader::take_quoted(char quote, bool is_python, std::pmr::string& out) {
  out.push_back('"');
  while (!left.empty()) {
    const char c = left.front();
    left.remove_prefix(1);
    if (c == quote) {
      out.push_back('"');
      return true;
    }
    if (c != '\\') {
      append_char(c, out);
      continue;
    }
    if (left.empty()) return false;
    const char escaped = left.front();
    left.remove_prefix(1);
    uint32_t code = 0;
    if (string_view("\"\\/bfnrt").find(escaped) != string_view::npos) {
      out.push_back('\\');
      out.push_back(escaped);
    } else if (escaped == 'u' && read_code(left, code)) {
      out.append("\\u").append(left.substr(0, 4));
      left.remove_prefix(4);
    } else if (!is_python) {
      return false;
    } else if (escaped == '\'') {
      out.push_back(escaped);
    } else if (escaped == 'x' && left.size() >= 2 && is_hex(left[0]) && is_hex(left[1])) {
      out.append("\\u00").append(left.substr(0, 2));
      left.remove_prefix(2);
    } else {  // Python leaves what it does not know
      append_char('\\', out);
      append_char(escaped, out);
    }
  }
  return false;
}

bool CallReader::take_number(std::pmr::string& out) {
  size_t n = left.starts_with('-') ? 1 : 0;
  const auto digits = [&] {
    const size_t first = n;
    while (n < left.size() && is_digit(left[n])) ++n;
    return n != first;
  };
  const size_t first = n;
  if (!digits() || (left[first] == '0' && n - first > 1)) return false;
  if (n < left.size() && left[n] == '.') {
    ++n;
    if (!digits()) return false;
  }
  if (n < left.size() && (left[n] | 32) == 'e') {
    ++n;
    if (n < left.size() && (left[n] == '+' || left[n] == '-')) ++n;
    if (!digits()) return false;
  }
  out.append(left.substr(0, n));
  left.remove_prefix(n);
  return true;
}

bool CallReader::take_list(ValueStyle style, char end, std::pmr::string& out, int depth) {
  out.push_back('[');
  const string_view close(&end, 1);
  for (bool is_first = true;; is_first = false) {
    skip_space();
    if ((is_first || style == ValueStyle::kPython) && take(close)) break;
    if (!is_first) out.append(", ");
    if (!take_value(style, out, depth)) return false;
    skip_space();
    if (take(",")) continue;
    if (!take(close)) return false;
    break;
  }
  out.push_back(']');
  return true;
}

bool CallReader::take_object(ValueStyle style, std::pmr::string& out, int depth) {
  out.push_back('{');
  for (bool is_first = true;; is_first = false) {
    skip_space();
    if ((is_first || style == ValueStyle::kPython) && take("}")) break;
    if (!is_first) out.append(", ");
    string_view key;
    if (left.starts_with('"') || left.starts_with('\'') || left.starts_with(kGemmaQuote)) {
      if (!take_value(style, out, depth)) return false;
    } else {
      if (style != ValueStyle::kGemma || !take_name(key)) return false;
      append_json_text(key, out);
    }
    skip_space();
    if (!take(":")) return false;
    out.append(": ");
    if (!take_value(style, out, depth)) return false;
    skip_space();
    if (take(",")) continue;
    if (!take("}")) return false;
    break;
  }
  out.push_back('}');
  return true;
}

bool CallReader::take_value(ValueStyle style, std::pmr::string& out, int depth) {
  skip_space();
  if (left.empty() || depth >= kMaxDepth) return false;
  const bool is_python = style == ValueStyle::kPython;
  if (take("{")) return take_object(style, out, depth + 1);
  if (take("[")) return take_list(style, ']', out, depth + 1);
  if (is_python && take("(")) return take_list(style, ')', out, depth + 1);
  if (take("\"")) return take_quoted('"', is_python, out);
  if (is_python && take("'")) return take_quoted('\'', true, out);
  string_view text;
  if (style == ValueStyle::kGemma && take(kGemmaQuote)) {
    if (!take_until(kGemmaQuote, text)) return false;
    append_json_text(text, out);
    return true;
  }
  if (left.front() == '-' || is_digit(left.front())) return take_number(out);
  if (!take_name(text)) return false;
  constexpr string_view kWords[][2] = {{"true", "True"}, {"false", "False"}, {"null", "None"}};
  for (const auto& word : kWords) {
    if (text != word[0] && (style == ValueStyle::kJson || text != word[1])) continue;
    out.append(word[0]);
    return true;
  }
  return false;
}

}  // namespace weir
