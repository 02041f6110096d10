// Cuts a template into tokens, as Jinja does with trim_blocks and lstrip_blocks: a line end behind a block tag or a
// comment is dropped, and so is white space before one on its line. Part of parser.cpp.
#pragma once

#include <algorithm>
#include <charconv>

#include "text/jinja/run.h"

namespace weir::jinja {

enum class TokenKind : uint8_t { kData, kName, kString, kNumber, kSign, kEnd };

struct Token {
  bool is_name(std::string_view name) const { return kind == TokenKind::kName && text == name; }
  bool is(std::string_view sign) const { return kind == TokenKind::kSign && text == sign; }

  TokenKind kind;
  uint32_t line;          // from 1
  std::string_view text;  // of a string what it stands for; of others what stands in the template
  Value number = {};
};

inline bool is_digit(char c) { return c >= '0' && c <= '9'; }
inline bool is_word(char c) { return is_digit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || c == '_' || c < 0; }

// Appends what the escape at the front of `rest`, behind a backslash, stands for and says how long it is; 0: it cannot
// be read. An unknown one stands for itself, as in Python.
inline size_t unescape(std::string_view rest, std::pmr::string& out) {
  constexpr std::string_view kLetters = "\\'\"abfnrtv", kMeaning = "\\'\"\a\b\f\n\r\t\v";
  const size_t letter = kLetters.find(rest[0]), n_digits = rest[0] == 'x' ? 2 : rest[0] == 'u' ? 4 : 8;
  if (letter != std::string_view::npos) return out += kMeaning[letter], 1;
  if (is_digit(rest[0]) || rest[0] == 'N') return 0;
  if (rest[0] == '\n') return 1;  // the line goes on
  if (std::string_view("xuU").find(rest[0]) == std::string_view::npos) return out.append("\\").append(rest, 0, 1), 1;
  const std::string_view digits = rest.substr(1, n_digits);
  uint32_t code = 0;
  if (digits.size() < n_digits || std::from_chars(digits.begin(), digits.end(), code, 16).ptr != digits.end()) return 0;
  if (code >= 0x110000 || (code >= 0xD800 && code < 0xE000)) return 0;
  put_code(out, code);
  return 1 + n_digits;
}

class Lexer {
 public:
  // `source`, whose line ends are \n, lives as long as the tokens; strings with escapes are kept in `heap`.
  Lexer(std::string_view source, Heap& heap, std::pmr::vector<Token>& out) : source_(source), heap_(heap), out_(out) {}

  Status run() {
    while (at_ < source_.size()) {
      size_t tag = source_.find('{', at_);
      while (tag < source_.size() && !has("{%#", tag + 1)) tag = source_.find('{', tag + 1);
      put_data(std::min(tag, source_.size()));
      if (at_ == source_.size()) break;
      WEIR_TRY(has("#", at_ + 1) ? skip_comment() : read_tag(has("%", at_ + 1) ? "%}" : "}}"));
    }
    put(TokenKind::kEnd, "end of template", 0);
    return {};
  }

 private:
  bool has(std::string_view letters, size_t at) const {
    return at < source_.size() && letters.find(source_[at]) != std::string_view::npos;
  }
  void skip(size_t n) {
    const std::string_view skipped = source_.substr(at_, n);
    line_ += static_cast<uint32_t>(std::count(skipped.begin(), skipped.end(), '\n'));
    at_ += skipped.size();
  }
  void skip_spaces() {
    for (size_t n; at_ < source_.size() && is_space(code_at(source_, at_, n));) skip(n);
  }
  void put(TokenKind kind, std::string_view text, size_t n_bytes) {
    out_.push_back({kind, line_, text});
    skip(n_bytes);
  }
  Status fail_here(const char* what) const { return fail(kBadTemplate, WEIR_TEMPLATE_LINE "%s", line_, what); }

  // Where the white space at the text's end begins, not before `first`.
  static size_t before_spaces(std::string_view text, size_t first) {
    size_t end = first;
    for (size_t i = first, n; i < text.size(); i += n) {
      if (!is_space(code_at(text, i, n))) end = i + n;
    }
    return end;
  }

  // Text up to the tag, cut as the sign behind the tag's two characters says.
  void put_data(size_t tag) {
    std::string_view text = source_.substr(at_, tag - at_);
    const size_t line_begin = text.rfind('\n') + 1;  // npos + 1 is 0
    const bool at_line = line_begin > 0 || at_ == 0 || source_[at_ - 1] == '\n';
    if (has("-", tag + 2)) {
      text = text.substr(0, before_spaces(text, 0));
    } else if (at_line && has("%#", tag + 1) && !has("+", tag + 2) && before_spaces(text, line_begin) == line_begin) {
      text = text.substr(0, line_begin);
    }
    if (!text.empty()) put(TokenKind::kData, text, 0);
    skip(tag - at_);
  }

  // Skips the end of a tag or comment, which stands at `end` with its sign, and what that drops behind itself.
  void skip_end(size_t end, bool drops_line_end) {
    skip(end + (has("-+", end) ? 3 : 2) - at_);
    if (source_[end] == '-') return skip_spaces();
    if (drops_line_end && source_[end] != '+' && has("\n", at_)) skip(1);
  }

  Status skip_comment() {
    const size_t from = at_ + (has("-+", at_ + 2) ? 3 : 2), end = source_.find("#}", from);
    if (end == std::string_view::npos) return fail_here("a comment has no end #}");
    skip_end(end > from && has("-+", end - 1) ? end - 1 : end, true);
    return {};
  }

  Status read_tag(std::string_view end) {
    std::pmr::string open(&heap_);  // brackets
    put(TokenKind::kSign, source_.substr(at_, 2), has("-+", at_ + 2) ? 3 : 2);
    while (true) {
      skip_spaces();
      if (at_ == source_.size()) return fail_here("a tag has no end");
      const size_t n_sign = has("-", at_) || (has("+", at_) && end == "%}") ? 1 : 0;
      if (open.empty() && source_.substr(at_ + n_sign).starts_with(end)) {
        put(TokenKind::kSign, end, 0);
        return skip_end(at_, end == "%}"), Status();
      }
      WEIR_TRY(read_token(open));
    }
  }

  Status read_token(std::pmr::string& open) {
    const std::string_view rest = source_.substr(at_);
    const char c = rest[0];
    if (c == '"' || c == '\'') return read_string(c);
    if (is_digit(c)) return read_number(rest);
    size_t n = static_cast<size_t>(std::find_if_not(rest.begin(), rest.end(), is_word) - rest.begin());
    if (n > 0) return put(TokenKind::kName, rest.substr(0, n), n), Status();
    constexpr std::string_view kOpen = "([{", kClose = ")]}", kOther = "+-/*%~<>=!.:|,";
    const size_t opens = kOpen.find(c);
    const bool closes = kClose.find(c) != std::string_view::npos, opens_one = opens != std::string_view::npos;
    n = rest.starts_with("**") || rest.starts_with("//") || (has("=!<>", at_) && has("=", at_ + 1)) ? 2 : 1;
    const bool is_known = opens_one || (kOther.find(c) != std::string_view::npos && (c != '!' || n == 2));
    if (closes ? open.empty() || open.back() != c : !is_known)
      return fail(kBadTemplate, WEIR_TEMPLATE_LINE "unexpected '%c'", line_, c);
    if (opens_one) open += kClose[opens];
    if (closes) open.pop_back();
    put(TokenKind::kSign, rest.substr(0, n), n);
    return {};
  }

  Status read_string(char quote) {
    std::pmr::string made(&heap_);
    size_t i = at_ + 1;
    for (size_t n = 1; i < source_.size() && source_[i] != quote; i += n) {
      const bool is_escape = source_[i] == '\\' && i + 1 < source_.size();
      n = is_escape ? 1 + unescape(source_.substr(i + 1), made) : 1;
      if (is_escape && n == 1) return fail_here("a string has a bad escape");
      if (!is_escape) made += source_[i];
    }
    if (i >= source_.size()) return fail_here("a string has no end");
    put(TokenKind::kString, make_text(heap_, made, false)->text, i + 1 - at_);
    return {};
  }

  Status read_number(std::string_view rest) {
    int64_t whole = 0;
    double real = 0;
    auto result = std::from_chars(rest.begin(), rest.end(), whole);
    const auto at = static_cast<size_t>(result.ptr - source_.begin());
    const size_t digits = has(".", at) || !has("-+", at + 1) ? at + 1 : at + 2;
    const bool is_index = at_ > 0 && source_[at_ - 1] == '.';  // l.0.1 has no number 0.1
    const bool is_real = has(".eE", at) && digits < source_.size() && is_digit(source_[digits]) && !is_index;
    if (is_real) result = std::from_chars(rest.begin(), rest.end(), real);
    if (result.ec != std::errc() || (result.ptr < rest.end() && is_word(*result.ptr)))
      return fail_here("a number cannot be read");
    const auto n = static_cast<size_t>(result.ptr - rest.begin());
    put(TokenKind::kNumber, rest.substr(0, n), n);
    out_.back().number = is_real ? Value::real(real) : Value::integer(whole);
    return {};
  }

  std::string_view source_;
  Heap& heap_;
  std::pmr::vector<Token>& out_;
  size_t at_ = 0;
  uint32_t line_ = 1;
};

}  // namespace weir::jinja
