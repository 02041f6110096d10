// Cuts a template into tokens.
#include "text/jinja/lexer.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string>

#include "text/jinja/unicode.h"

namespace weir::jinja {
namespace {

using std::string_view;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) { return is_digit(c) || is_letter(static_cast<uint8_t>(c) & 0x7Fu) || c == '_' || c < 0; }

// Escapes of a string as Python reads them; an unknown one stands for itself.
class Unescaped {
 public:
  explicit Unescaped(std::pmr::memory_resource& memory) : out_(&memory) {}

  bool read(string_view text) {
    for (size_t i = 0; i < text.size();) {
      if (text[i] != '\\' || i + 1 == text.size()) {
        out_ += text[i++];
      } else if (!read_escape(text.substr(i + 1), i)) {
        return false;
      }
    }
    return true;
  }
  string_view text() const { return out_; }

 private:
  // `rest` follows a backslash at `at`, which is moved behind the escape.
  bool read_escape(string_view rest, size_t& at) {
    constexpr string_view kLetters = "\\'\"abfnrtv", kMeaning = "\\'\"\a\b\f\n\r\t\v";
    const char c = rest[0];
    const size_t letter = kLetters.find(c);
    at += 2;
    if (letter != string_view::npos) {
      out_ += kMeaning[letter];
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const size_t n_digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      at += n_digits;
      return put(rest.substr(1, n_digits), n_digits, 16);
    } else if (c >= '0' && c <= '7') {
      const size_t n = std::min<size_t>(3, std::min(rest.find_first_not_of("01234567"), rest.size()));
      at += n - 1;
      return put(rest.substr(0, n), n, 8);
    } else if (c != '\n') {
      out_.append("\\").append(rest, 0, 1);
    }
    return true;
  }

  bool put(string_view digits, size_t n_wanted, int base) {
    uint32_t code = 0;
    const char* end = digits.data() + digits.size();
    if (digits.size() != n_wanted || std::from_chars(digits.data(), end, code, base).ptr != end) return false;
    if (code >= 0x110000 || (code >= 0xD800 && code < 0xE000)) return false;
    put_code(out_, code);
    return true;
  }

  std::pmr::string out_;
};

class Lexer {
 public:
  Lexer(string_view source, std::pmr::memory_resource& arena, std::pmr::vector<Token>& out)
      : source_(source), arena_(arena), out_(out) {}

  Status run() {
    while (at_ < source_.size()) WEIR_TRY(read_data());
    out_.push_back({TokenKind::kEnd, line_, "end of template"});
    return {};
  }

 private:
  string_view rest() const { return source_.substr(at_); }
  void skip(size_t n) {
    const string_view skipped = source_.substr(at_, n);
    line_ += static_cast<uint32_t>(std::count(skipped.begin(), skipped.end(), '\n'));
    at_ += skipped.size();
  }
  void skip_spaces() {
    for (size_t n; at_ < source_.size() && is_space(code_at(source_, at_, n));) skip(n);
  }
  void put(TokenKind kind, size_t n) {
    out_.push_back({kind, line_, source_.substr(at_, n)});
    skip(n);
  }
  Status fail_here(const char* what) const { return fail(kBadTemplate, WEIR_TEMPLATE_LINE "%s", line_, what); }

  // Text up to the tag at `tag`, cut as the sign behind its two characters says.
  void put_data(size_t tag, bool is_print) {
    string_view text = source_.substr(at_, tag - at_);
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : 0;
    const bool at_line = at_ == 0 || source_[at_ - 1] == '\n';
    if (sign == '-') {
      text = text.substr(0, before_spaces(text, 0));
    } else if (sign != '+' && !is_print) {
      const size_t line_begin = text.rfind('\n') + 1;  // npos + 1 is 0
      if ((line_begin > 0 || at_line) && before_spaces(text, line_begin) == line_begin)
        text = text.substr(0, line_begin);
    }
    if (!text.empty()) out_.push_back({TokenKind::kData, line_, text});
    skip(tag - at_);
  }

  // Where the white space at the text's end begins, not before `first`.
  static size_t before_spaces(string_view text, size_t first) {
    size_t end = first;
    for (size_t i = first, n; i < text.size(); i += n) {
      if (!is_space(code_at(text, i, n))) end = i + n;
    }
    return end;
  }

  Status read_data() {
    size_t tag = at_;
    for (; tag + 1 < source_.size(); ++tag) {
      if (source_[tag] == '{' && std::strchr("%{#", source_[tag + 1]) != nullptr && source_[tag + 1] != 0) break;
    }
    if (tag + 1 >= source_.size()) {
      put(TokenKind::kData, source_.size() - at_);
      return {};
    }
    const char kind = source_[tag + 1];
    put_data(tag, kind == '{');
    if (kind == '#') return skip_comment();
    if (kind == '%' && skip_tag("raw", false)) return read_raw();
    put(kind == '%' ? TokenKind::kBlockBegin : TokenKind::kPrintBegin, 2 + sign_bytes(at_ + 2));
    return read_tag(kind == '%' ? "%}" : "}}");
  }

  size_t sign_bytes(size_t at) const {
    return at < source_.size() && (source_[at] == '-' || source_[at] == '+') ? 1 : 0;
  }

  // Skips the end of a tag or comment, with what it drops behind itself.
  void skip_end(bool has_minus, size_t n_bytes, bool drops_line_end) {
    skip(n_bytes);
    if (has_minus) {
      skip_spaces();
    } else if (drops_line_end && rest().starts_with('\n')) {
      skip(1);
    }
  }

  Status skip_comment() {
    const size_t from = at_ + 2 + sign_bytes(at_ + 2);
    const size_t end = source_.find("#}", from);
    if (end == string_view::npos) return fail_here("a comment has no end #}");
    const char sign = end > from ? source_[end - 1] : 0;
    skip_end(sign == '-', end + 2 - at_, sign != '+');
    return {};
  }

  // Skips {% name %} at the current place; false when something else stands there.
  bool skip_tag(string_view name, bool drops_line_end) {
    size_t at = at_ + 2 + sign_bytes(at_ + 2);
    const auto spaces = [&] {
      for (size_t n; at < source_.size() && is_space(code_at(source_, at, n)); at += n) {
      }
    };
    spaces();
    if (!source_.substr(at).starts_with(name)) return false;
    at += name.size();
    spaces();
    const size_t n_sign = sign_bytes(at);
    const char sign = n_sign > 0 ? source_[at] : 0;
    if (source_.substr(at + n_sign, 2) != "%}" || (sign == '+' && !drops_line_end)) return false;
    skip_end(sign == '-', at + n_sign + 2 - at_, drops_line_end && sign == 0);
    return true;
  }

  Status read_raw() {
    for (size_t tag = at_; (tag = source_.find("{%", tag)) != string_view::npos; ++tag) {
      const size_t at = at_;
      const uint32_t line = line_;
      at_ = tag;
      const bool is_end = skip_tag("endraw", true);
      if (!is_end) {
        at_ = at;
        continue;
      }
      const size_t behind = at_;
      const uint32_t n_lines = line_ - line;
      at_ = at;
      line_ = line;
      put_data(tag, false);
      at_ = behind;
      line_ += n_lines;
      return {};
    }
    return fail_here("{% raw %} has no {% endraw %}");
  }

  Status read_tag(string_view end) {
    const TokenKind kind = end == "%}" ? TokenKind::kBlockEnd : TokenKind::kPrintEnd;
    std::pmr::string open(&arena_);  // brackets
    while (true) {
      skip_spaces();
      if (at_ == source_.size()) return fail_here("a tag has no end");
      if (open.empty()) {
        const char sign = source_[at_];
        const bool has_sign = sign == '-' || (sign == '+' && end == "%}");
        if (rest().substr(has_sign ? 1 : 0).starts_with(end)) {
          out_.push_back({kind, line_, end});
          skip_end(sign == '-', (has_sign ? 1u : 0u) + 2, end == "%}" && !has_sign);
          return {};
        }
      }
      WEIR_TRY(read_token(open));
    }
  }

  Status read_token(std::pmr::string& open) {
    const char c = source_[at_];
    if (c == '"' || c == '\'') return read_string(c);
    if (is_digit(c)) return read_number();
    if (is_word(c)) {
      size_t n = 1;
      while (at_ + n < source_.size() && is_word(source_[at_ + n])) ++n;
      put(TokenKind::kName, n);
      return {};
    }
    for (const string_view two : {"**", "//", "==", "!=", ">=", "<="}) {
      if (!rest().starts_with(two)) continue;
      put(TokenKind::kOperator, 2);
      return {};
    }
    if (string_view("+-/*%~[](){}<>=.:|,;").find(c) == string_view::npos)
      return fail(kBadTemplate, WEIR_TEMPLATE_LINE "unexpected character '%c'", line_, c);
    if (c == '(' || c == '[' || c == '{') open += c == '(' ? ')' : c == '[' ? ']' : '}';
    if (c == ')' || c == ']' || c == '}') {
      if (open.empty() || open.back() != c) return fail(kBadTemplate, WEIR_TEMPLATE_LINE "unexpected '%c'", line_, c);
      open.pop_back();
    }
    put(TokenKind::kOperator, 1);
    return {};
  }

  Status read_string(char quote) {
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) return fail_here("a string has no end");
    string_view text = source_.substr(at_ + 1, end - at_ - 1);
    if (text.find('\\') != string_view::npos) {
      Unescaped unescaped(arena_);
      if (!unescaped.read(text)) return fail_here("a string has a bad escape");
      const string_view made = unescaped.text();
      auto* kept = static_cast<char*>(arena_.allocate(made.size() + 1, 1));
      std::copy(made.begin(), made.end(), kept);
      text = {kept, made.size()};
    }
    out_.push_back({TokenKind::kString, line_, text});
    skip(end + 1 - at_);
    return {};
  }

  // Digits, with single underscores between them.
  static size_t n_digits(string_view text, bool (*is_wanted)(char)) {
    size_t n = 0;
    while (n < text.size() && (is_wanted(text[n]) || (n > 0 && text[n] == '_' && n + 1 < text.size() &&
                                                      is_wanted(text[n + 1]) && text[n - 1] != '_')))
      ++n;
    return n;
  }

  Status read_number() {
    const string_view all = rest();
    const char letter = all.size() > 2 && all[0] == '0' ? static_cast<char>(all[1] | 0x20) : '0';
    const int base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
    const size_t begin = base == 10 ? 0 : 2;
    const auto is_hex = [](char c) { return is_digit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f'); };
    size_t n = begin + n_digits(all.substr(begin), base == 16 ? +is_hex : is_digit);
    bool is_real = false;
    if (base == 10 && n + 1 < all.size() && all[n] == '.' && is_digit(all[n + 1])) {
      is_real = true;
      n += 1 + n_digits(all.substr(n + 1), is_digit);
    }
    if (base == 10 && n + 1 < all.size() && (all[n] | 0x20) == 'e') {
      const size_t sign = all[n + 1] == '+' || all[n + 1] == '-' ? 1 : 0;
      const size_t exponent = n_digits(all.substr(std::min(all.size(), n + 1 + sign)), is_digit);
      is_real = is_real || exponent > 0;
      if (exponent > 0) n += 1 + sign + exponent;
    }
    std::pmr::string digits(all.substr(begin, n - begin), &arena_);
    std::erase(digits, '_');
    const char* end = digits.data() + digits.size();
    Token token = {is_real ? TokenKind::kFloat : TokenKind::kInteger, line_, all.substr(0, n)};
    const auto result = is_real ? std::from_chars(digits.data(), end, token.real)
                                : std::from_chars(digits.data(), end, token.integer, base);
    if (result.ec != std::errc() || result.ptr != end) return fail_here("a number cannot be read");
    out_.push_back(token);
    skip(n);
    return {};
  }

  string_view source_;
  std::pmr::memory_resource& arena_;
  std::pmr::vector<Token>& out_;
  size_t at_ = 0;
  uint32_t line_ = 1;
};

}  // namespace

Status cut_tokens(string_view source, std::pmr::memory_resource& arena, std::pmr::vector<Token>& out) {
  return Lexer(source, arena, out).run();
}

}  // namespace weir::jinja
