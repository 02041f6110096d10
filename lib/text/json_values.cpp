// Reads JSON into values of the template language.
#include "text/json_values.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/utf8.h"

namespace weir::jinja {
namespace {

using std::string_view;

class Reader {
 public:
  Reader(Heap& heap, string_view text, const char* what) : heap_(heap), text_(text), what_(what) {}

  Status run(Value& out) {
    Value value;
    WEIR_TRY(read(value, 0));
    if (next() != 0) return wrong("something follows the value");
    out = std::move(value);
    return {};
  }

 private:
  Status wrong(const char* why) const {
    const string_view before = text_.substr(0, at_);
    const size_t line = static_cast<size_t>(std::count(before.begin(), before.end(), '\n')) + 1;
    return fail(WEIR_ERR_INVALID_ARG, "%s, line %zu, byte %zu: %s", what_, line, at_ - (before.rfind('\n') + 1) + 1,
                why);
  }
  // The character behind white space; 0 at the end.
  char next() {
    at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size());
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool skip(string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  Status read(Value& out, uint32_t depth) {
    const char c = next();
    if (depth > kMaxValueDepth) return wrong("values are nested too deeply");
    if (heap_.bytes() > kMaxHeapBytes) return wrong("it is too large");
    if (at_ == text_.size()) return wrong("it ends too early");
    if (c == '{' || c == '[') return read_items(out, c == '{', depth);
    if (c == '"') return read_text(out);
    if (c == '-' || (c >= '0' && c <= '9')) return read_number(out);
    if (skip("true")) return out = Value::boolean(true, true), Status();
    if (skip("false")) return out = Value::boolean(false, true), Status();
    if (skip("null")) return out = Value::none(), Status();
    return wrong("a value was expected");
  }

  Status read_items(Value& out, bool is_object, uint32_t depth) {
    Seq* list = is_object ? nullptr : heap_.make<Seq>(&heap_, SeqKind::kList);
    Dict* dict = is_object ? heap_.make<Dict>(&heap_) : nullptr;
    out = is_object ? Value(dict) : Value(list);
    const char end = is_object ? '}' : ']';
    ++at_;
    if (next() == end) return ++at_, Status();
    while (true) {
      Value key, value;
      if (is_object) {
        if (next() != '"') return wrong("a name was expected");
        WEIR_TRY(read_text(key));
        if (next() != ':') return wrong("':' was expected");
        ++at_;
      }
      WEIR_TRY(read(value, depth + 1));
      is_object ? dict->set(key, value) : list->items.push_back(value);
      const char c = next();
      if (c != end && c != ',') return wrong(is_object ? "',' or '}' was expected" : "',' or ']' was expected");
      ++at_;
      if (c == end) return {};
    }
  }

  Status read_hex(uint32_t& code) {
    const string_view digits = text_.substr(at_, 4);
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
    if (digits.size() != 4 || result.ptr != digits.data() + 4) return wrong("\\u needs four digits");
    at_ += 4;
    return {};
  }

  Status read_escape(std::pmr::string& out) {
    constexpr string_view kLetters = "\"\\/bfnrt", kMeaning = "\"\\/\b\f\n\r\t";
    const size_t letter = at_ < text_.size() ? kLetters.find(text_[at_]) : string_view::npos;
    if (letter != string_view::npos) {
      out += kMeaning[letter];
      ++at_;
      return {};
    }
    if (!skip("u")) return wrong("a bad escape");
    uint32_t code = 0, low = 0;
    WEIR_TRY(read_hex(code));
    if (code >= 0xD800 && code < 0xDC00 && skip("\\u")) {
      WEIR_TRY(read_hex(low));
      if (low >= 0xDC00 && low < 0xE000) code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    if (code >= 0xD800 && code < 0xE000) return wrong("half of a surrogate pair");
    put_code(out, code);
    return {};
  }

  Status read_text(Value& out) {
    std::pmr::string made(&heap_);
    ++at_;
    while (true) {
      size_t end = at_;
      while (end < text_.size() && text_[end] != '"' && text_[end] != '\\' && static_cast<uint8_t>(text_[end]) >= 0x20)
        ++end;
      const string_view plain = text_.substr(at_, end - at_);
      const size_t n_valid = utf8_valid_prefix(plain);
      at_ += n_valid;
      if (n_valid < plain.size()) return wrong("a byte that is no UTF-8");
      made.append(plain);
      if (end == text_.size()) return wrong("a text has no end");
      if (skip("\"")) break;
      if (!skip("\\")) return wrong("a control character in a text");
      WEIR_TRY(read_escape(made));
    }
    out = make_text(heap_, made, true);
    return {};
  }

  bool skip_digits() {
    const size_t first = at_;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
    return at_ > first;
  }

  Status read_number(Value& out) {
    const size_t begin = at_;
    skip("-");
    if (!skip("0") && !skip_digits()) return wrong("a number without digits");
    const size_t end_of_whole = at_;
    if (skip(".") && !skip_digits()) return wrong("a number without digits behind its point");
    if (skip("e") || skip("E")) {
      if (!skip("+")) skip("-");
      if (!skip_digits()) return wrong("a number without digits in its exponent");
    }
    const string_view all = text_.substr(begin, at_ - begin);
    const char* end = all.data() + all.size();
    int64_t number = 0;
    double real = 0;
    if (at_ == end_of_whole && std::from_chars(all.data(), end, number).ec == std::errc()) {
      out = Value::integer(number, true);
    } else if (at_ == end_of_whole) {
      out = {Type::kLargeInt, make_text(heap_, all, true)};
    } else {
      // Beyond the range as in Python: infinite or zero.
      if (std::from_chars(all.data(), end, real).ec != std::errc())
        real = all.find("e-") != string_view::npos || all.find("E-") != string_view::npos ? 0.0
               : all[0] == '-'                                                            ? -HUGE_VAL
                                                                                          : HUGE_VAL;
      out = Value::real(real, true);
    }
    return {};
  }

  Heap& heap_;
  string_view text_;
  const char* what_;
  size_t at_ = 0;
};

}  // namespace

Status read_json(Heap& heap, string_view text, const char* what, Value& out) {
  return Reader(heap, text, what).run(out);
}

}  // namespace weir::jinja
