// Patterns: a parser by descent.
#include "text/constraint/pattern.h"

#include <algorithm>

#include "core/utf8.h"
#include "text/constraint/json_strings.h"

namespace weir::constraint {

namespace {

constexpr uint32_t kMaxDepth = 100;
constexpr uint32_t kMaxTimes = 5000;
constexpr uint32_t kMaxStates = 10000;
// Stand for the quotes while automata are made, so that ^ and $ are characters like others. No JSON string has them.
constexpr uint8_t kBegin = 1, kEnd = 2;

constexpr CodeRange kDigits[] = {{'0', '9'}};
constexpr CodeRange kWord[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
constexpr CodeRange kSpace[] = {{9, 13},          {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680},
                                {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F},
                                {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
constexpr CodeRange kLineEnds[] = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

class PatternParser {
 public:
  PatternParser(Exprs& exprs, std::string_view text, const char* what)
      : x_(exprs), text_(text), what_(what), set_(exprs.memory()) {}

  // `begins`, `ends`: there is one alternative, and it begins with ^ or ends with $.
  Status run(ExprId& out, bool& begins, bool& ends) {
    WEIR_TRY(read_choice(0, out));
    begins = begins_;
    ends = ends_;
    return at_ == text_.size() ? Status() : wrong(WEIR_ERR_INVALID_ARG, "a ')' closes nothing");
  }

 private:
  Status wrong(weir_status code, const char* why) const {
    return fail(code, "%s: pattern, byte %zu: %s", what_, at_ + 1, why);
  }
  bool skip(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool is_done() const { return at_ == text_.size(); }

  Status read_choice(uint32_t depth, ExprId& out) {
    if (depth > kMaxDepth) return wrong(WEIR_ERR_UNSUPPORTED, "groups are nested too deeply");
    PodVector<ExprId> ways(x_.memory()), parts(x_.memory());
    do {
      parts.clear();
      if (depth == 0) begins_ = ways.empty() && peek() == '^';
      while (!is_done() && peek() != '|' && peek() != ')') {
        ExprId part = 0;
        bool is_border = false;
        const bool is_end = peek() == '$';
        WEIR_TRY(read_atom(depth, part, is_border));
        WEIR_TRY(read_times(is_border, part));
        parts.push_back(part);
        if (depth == 0) ends_ = ways.empty() && is_end;
      }
      ways.push_back(x_.cat({parts.data(), parts.size()}));
    } while (skip("|"));
    out = x_.alt({ways.data(), ways.size()});
    return {};
  }

  Status read_atom(uint32_t depth, ExprId& out, bool& is_border) {
    if (skip("(")) {
      if (skip("?")) {
        if (skip("P")) {
          // a named group, as other dialects write it
        }
        if (!skip(":") && (!skip("<") || peek() == '=' || peek() == '!'))
          return wrong(WEIR_ERR_UNSUPPORTED, "looking around is not supported");
        if (text_[at_ - 1] == '<') at_ = std::min(text_.find('>', at_), text_.size() - 1) + 1;
      }
      WEIR_TRY(read_choice(depth + 1, out));
      return skip(")") ? Status() : wrong(WEIR_ERR_INVALID_ARG, "a ')' is missing");
    }
    is_border = peek() == '^' || peek() == '$';
    if (skip("^")) return out = x_.bytes(kBegin, kBegin), Status();
    if (skip("$")) return out = x_.bytes(kEnd, kEnd), Status();
    if (peek() == '*' || peek() == '+' || peek() == '?')
      return wrong(WEIR_ERR_INVALID_ARG, "there is nothing to repeat");
    set_.clear();
    if (skip("[")) {
      WEIR_TRY(read_class());
    } else if (skip(".")) {
      set_.add(kLineEnds);
      set_.invert();
    } else if (skip("\\")) {
      uint32_t code = 0;
      bool is_set = false;
      WEIR_TRY(read_escape(false, set_, code, is_set));
      if (!is_set) set_.add(code, code);
    } else {
      const uint32_t code = read_code();
      set_.add(code, code);
    }
    set_.normalise();
    out = usual_character(x_, set_);
    return {};
  }

  uint32_t read_code() {
    const size_t n = utf8_step(text_.substr(at_)).n_bytes;  // a JSON string: it is valid
    const uint32_t code = utf8_code_point(text_.substr(at_), n);
    at_ += n;
    return code;
  }

  Status read_hex(uint32_t least, uint32_t most, uint32_t& code) {
    code = 0;
    for (uint32_t i = 0; i < most; ++i) {
      const char c = peek();
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) return i >= least ? Status() : wrong(WEIR_ERR_INVALID_ARG, "a hexadecimal digit was expected");
      code = code * 16 + static_cast<uint32_t>(digit);
      ++at_;
    }
    return {};
  }

  // Behind the backslash: a set, which is added, or a character.
  Status read_escape(bool in_class, CodeSet& set, uint32_t& code, bool& is_set) {
    if (is_done()) return wrong(WEIR_ERR_INVALID_ARG, "it ends with a backslash");
    static constexpr char kNames[] = "tnrfv0", kCodes[] = {'\t', '\n', '\r', '\f', '\v', '\0'};
    const char c = peek();
    for (uint32_t i = 0; i < 6; ++i) {
      if (c == kNames[i]) return ++at_, code = static_cast<uint8_t>(kCodes[i]), Status();
    }
    const char lower = static_cast<char>(c | 0x20);
    if (lower == 'd' || lower == 'w' || lower == 's') {
      ++at_;
      is_set = true;
      CodeSet found(x_.memory());
      if (lower == 'd') found.add(kDigits);
      if (lower == 'w') found.add(kWord);
      if (lower == 's') found.add(kSpace);
      if (c != lower) found.invert();
      set.add(found.ranges());
      return {};
    }
    if (skip("x")) return read_hex(2, 2, code);
    if (skip("u{")) {
      WEIR_TRY(read_hex(1, 6, code));
      return skip("}") ? Status() : wrong(WEIR_ERR_INVALID_ARG, "a '}' is missing");
    }
    if (skip("u")) return read_hex(4, 4, code);
    if (in_class && skip("b")) return code = '\b', Status();
    if ((c >= '1' && c <= '9') || (lower >= 'a' && lower <= 'z'))
      return wrong(WEIR_ERR_UNSUPPORTED, "this escape is not supported");
    code = read_code();
    return {};
  }

  // Behind the bracket.
  Status read_class() {
    const bool is_inverted = skip("^");
    while (!skip("]")) {
      if (is_done()) return wrong(WEIR_ERR_INVALID_ARG, "a ']' is missing");
      uint32_t from = 0, to = 0;
      bool is_set = false;
      WEIR_TRY(read_member(from, is_set));
      if (is_set) continue;
      to = from;
      if (peek() == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        ++at_;
        WEIR_TRY(read_member(to, is_set));
        if (is_set || to < from) return wrong(WEIR_ERR_INVALID_ARG, "a range that ends before it begins");
      }
      set_.add(from, to);
    }
    if (is_inverted) set_.invert();
    return {};
  }
  Status read_member(uint32_t& code, bool& is_set) {
    if (skip("\\")) return read_escape(true, set_, code, is_set);
    code = read_code();
    return {};
  }

  bool read_number(uint32_t& out) {
    const size_t first = at_;
    out = 0;
    for (; peek() >= '0' && peek() <= '9'; ++at_)
      out = std::min(out * 10 + static_cast<uint32_t>(peek() - '0'), 99999u);
    return at_ > first;
  }

  Status read_times(bool is_border, ExprId& part) {
    const size_t before = at_;
    uint32_t min = 1, max = 1;
    if (skip("*")) {
      min = 0;
      max = kNoLimit;
    } else if (skip("+")) {
      max = kNoLimit;
    } else if (skip("?")) {
      min = 0;
    } else if (skip("{")) {
      if (!read_number(min)) return wrong(WEIR_ERR_INVALID_ARG, "'{' without a number of times");
      max = min;
      if (skip(",") && !read_number(max)) max = kNoLimit;
      if (!skip("}")) return wrong(WEIR_ERR_INVALID_ARG, "a '}' is missing");
    }
    if (before == at_) return {};
    skip("?");  // which of the matches is found makes no difference here
    if (max < min) return wrong(WEIR_ERR_INVALID_ARG, "a repetition with a maximum below its minimum");
    if (min > kMaxTimes || (max != kNoLimit && max > kMaxTimes))
      return wrong(WEIR_ERR_UNSUPPORTED, "a repetition of more than 5000 times");
    if (is_border || peek() == '*' || peek() == '+' || peek() == '?')
      return wrong(WEIR_ERR_INVALID_ARG, "there is nothing to repeat");
    part = x_.repeat(part, min, max);
    return {};
  }

  Exprs& x_;
  std::string_view text_;
  const char* what_;
  size_t at_ = 0;
  bool begins_ = false, ends_ = false;
  CodeSet set_;
};

// One character of any string in its usual spelling.
ExprId usual_any(Exprs& x) {
  CodeSet all(x.memory());
  all.invert();
  return usual_character(x, all);
}

}  // namespace

Status make_pattern(std::pmr::memory_resource* memory, std::string_view pattern, const char* what, Dfa& out) {
  Exprs x(memory);
  ExprId middle = 0;
  bool begins = false, ends = false;
  WEIR_TRY(PatternParser(x, pattern, what).run(middle, begins, ends));
  const ExprId begin = x.bytes(kBegin, kBegin), end = x.bytes(kEnd, kEnd), any = usual_any(x);
  const ExprId before = begins ? x.empty() : x.optional(x.cat(begin, x.repeat(any, 0, kNoLimit)));
  const ExprId behind = ends ? x.empty() : x.optional(x.cat(x.repeat(any, 0, kNoLimit), end));
  Dfa found(memory), strings(memory);
  const bool fits = make_dfa(x, x.cat(x.cat(before, middle), behind), kMaxStates, found) &&
                    make_dfa(x, x.cat(x.cat(begin, x.repeat(any, 0, kNoLimit)), end), kMaxStates, strings) &&
                    intersect(found, strings, false, kMaxStates, out);
  if (!fits) return fail(WEIR_ERR_UNSUPPORTED, "%s: the pattern needs too many states", what);
  rename_borders(out, kBegin, kEnd, '"');
  return {};
}

bool make_length(std::pmr::memory_resource* memory, uint32_t min, uint32_t max, Dfa& out) {
  Exprs x(memory);
  if (min > kMaxTimes || (max != kNoLimit && max > kMaxTimes)) return false;
  const ExprId quote = x.text("\"");
  return make_dfa(x, x.cat(x.cat(quote, x.repeat(usual_any(x), min, max)), quote), kMaxDfaStates, out);
}

const char* format_pattern(std::string_view name) {
  struct Format {
    std::string_view name;
    const char* pattern;
  };
#define WEIR_DATE                                                                                    \
  "[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|" \
  "02-(?:0[1-9]|1[0-9]|2[0-9]))"
#define WEIR_TIME \
  "(?:[01][0-9]|2[0-3]):[0-5][0-9]:(?:[0-5][0-9]|60)(?:\\.[0-9]+)?(?:[zZ]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
#define WEIR_BYTE "(?:[0-9]|[1-9][0-9]|1[0-9]{2}|2[0-4][0-9]|25[0-5])"
#define WEIR_IPV4 "(?:" WEIR_BYTE "\\.){3}" WEIR_BYTE
#define WEIR_LABEL "[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
#define WEIR_H16 "[0-9a-fA-F]{1,4}"
#define WEIR_IPV6                                                                                                  \
  "(?:(?:" WEIR_H16 ":){7}" WEIR_H16 "|(?:" WEIR_H16 ":){1,7}:|(?:" WEIR_H16 ":){1,6}:" WEIR_H16 "|(?:" WEIR_H16   \
  ":){1,5}(?::" WEIR_H16 "){1,2}|(?:" WEIR_H16 ":){1,4}(?::" WEIR_H16 "){1,3}|(?:" WEIR_H16 ":){1,3}(?::" WEIR_H16 \
  "){1,4}|(?:" WEIR_H16 ":){1,2}(?::" WEIR_H16 "){1,5}|" WEIR_H16 ":(?::" WEIR_H16 "){1,6}|:(?::" WEIR_H16         \
  "){1,7}|::)"
// RFC 3986: what may stand for itself in each part, or as a byte in hexadecimal digits.
#define WEIR_URI(more) "(?:[a-zA-Z0-9._~!$&'()*+,;=" more "-]|%[0-9a-fA-F]{2})"
#define WEIR_PCHAR WEIR_URI(":@")
  static constexpr Format kFormats[] = {
      {"date-time", "^" WEIR_DATE "[tT]" WEIR_TIME "$"},
      {"date", "^" WEIR_DATE "$"},
      {"time", "^" WEIR_TIME "$"},
      {"duration",
       "^P(?:(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)"
       "(?:T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S))?|"
       "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)|[0-9]+W)$"},
      {"uuid", "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"},
      {"email", "^[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]+(?:\\.[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]+)*@(?:" WEIR_LABEL
                "(?:\\." WEIR_LABEL ")*|\\[" WEIR_IPV4 "\\])$"},
      {"hostname",
       "^[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\\.[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*$"},
      {"ipv4", "^" WEIR_IPV4 "$"},
      {"ipv6", "^" WEIR_IPV6 "$"},
      {"uri",
       "^[a-zA-Z][a-zA-Z0-9+.-]*:(?://(?:" WEIR_URI(":") "*@)?(?:" WEIR_URI(
           "") "*|\\[(?:" WEIR_IPV6 "|[vV][0-9a-fA-F]+\\.[a-zA-Z0-9._~!$&'()*+,;=:-]+)\\])(?::[0-9]*)?(?:/" WEIR_PCHAR
               "*)*|/(?:" WEIR_PCHAR "+(?:/" WEIR_PCHAR "*)*)?|" WEIR_PCHAR "+(?:/" WEIR_PCHAR
               "*)*)?(?:\\?" WEIR_URI(":@/?") "*)?(?:#" WEIR_URI(":@/?") "*)?$"}};
  for (const Format& f : kFormats) {
    if (f.name == name) return f.pattern;
  }
  return nullptr;
}

}  // namespace weir::constraint
