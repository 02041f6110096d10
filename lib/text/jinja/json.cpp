// JSON in and out.
#include "text/jinja/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/c_format.h"
#include "core/utf8.h"
#include "text/jinja/merge_sort.h"
#include "text/jinja/run.h"
#include "text/jinja/unicode.h"

namespace weir::jinja {
namespace {

using std::string_view;

class Reader {
 public:
  Reader(Heap& heap, string_view text, const char* what) : heap_(heap), text_(text), what_(what) {}

  Status run(Value& out) {
    Value value;
    WEIR_TRY(read(value, 0));
    skip_spaces();
    if (at_ != text_.size()) return wrong("something follows the value");
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
  void skip_spaces() { at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size()); }
  bool skip(string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  Status read(Value& out, uint32_t depth) {
    skip_spaces();
    if (depth > kMaxValueDepth) return wrong("values are nested too deeply");
    if (heap_.bytes() > kMaxHeapBytes) return wrong("it is too large");
    if (at_ == text_.size()) return wrong("it ends too early");
    const char c = text_[at_];
    if (c == '{') return read_object(out, depth);
    if (c == '[') return read_array(out, depth);
    if (c == '"') return read_text(out);
    if (c == '-' || (c >= '0' && c <= '9')) return read_number(out);
    if (skip("true")) return out = Value::boolean(true, true), Status();
    if (skip("false")) return out = Value::boolean(false, true), Status();
    if (skip("null")) return out = Value::none(), Status();
    return wrong("a value was expected");
  }

  Status read_array(Value& out, uint32_t depth) {
    Seq* list = heap_.make<Seq>(&heap_, SeqKind::kList);
    out = list;
    ++at_;
    skip_spaces();
    if (skip("]")) return {};
    while (true) {
      list->items.emplace_back();
      Value item;
      WEIR_TRY(read(item, depth + 1));
      list->items.back() = std::move(item);
      skip_spaces();
      if (skip("]")) return {};
      if (!skip(",")) return wrong("',' or ']' was expected");
    }
  }

  Status read_object(Value& out, uint32_t depth) {
    Dict* dict = heap_.make<Dict>(&heap_);
    out = dict;
    ++at_;
    skip_spaces();
    if (skip("}")) return {};
    while (true) {
      Value key, value;
      skip_spaces();
      if (at_ == text_.size() || text_[at_] != '"') return wrong("a name was expected");
      WEIR_TRY(read_text(key));
      skip_spaces();
      if (!skip(":")) return wrong("':' was expected");
      WEIR_TRY(read(value, depth + 1));
      dict->set(key, value);
      skip_spaces();
      if (skip("}")) return {};
      if (!skip(",")) return wrong("',' or '}' was expected");
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
    const char c = at_ < text_.size() ? text_[at_] : 0;
    const size_t letter = c == 0 ? string_view::npos : kLetters.find(c);
    if (letter != string_view::npos) {
      out += kMeaning[letter];
      ++at_;
      return {};
    }
    if (c != 'u') return wrong("a bad escape");
    ++at_;
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
    Str* text = heap_.make<Str>(&heap_);
    out = text;
    ++at_;
    std::pmr::string made(&heap_);
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
    text->append(made, true);
    return {};
  }

  Status read_number(Value& out) {
    const size_t begin = at_;
    const auto digits = [&] {
      const size_t first = at_;
      while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
      return at_ > first;
    };
    skip("-");
    const bool is_zero = skip("0");
    if (!is_zero && !digits()) return wrong("a number without digits");
    bool is_real = false;
    if (skip(".")) {
      is_real = true;
      if (!digits()) return wrong("a number without digits behind its point");
    }
    if (skip("e") || skip("E")) {
      is_real = true;
      if (!skip("+")) skip("-");
      if (!digits()) return wrong("a number without digits in its exponent");
    }
    const char *from = text_.data() + begin, *to = text_.data() + at_;
    int64_t number = 0;
    double real = 0;
    if (!is_real && std::from_chars(from, to, number).ec == std::errc())
      return out = Value::integer(number, true), Status();
    if (!is_real) {
      out = {Type::kLargeInt, make_text(heap_, string_view(from, static_cast<size_t>(to - from)), true)};
      return {};
    }
    if (std::from_chars(from, to, real).ec != std::errc()) {  // beyond the range: as Python, infinite or zero
      const string_view digits_of(from, static_cast<size_t>(to - from));
      const size_t e = digits_of.find_first_of("eE");
      const bool is_small = e != string_view::npos && e + 1 < digits_of.size() && digits_of[e + 1] == '-';
      real = is_small ? 0.0 : HUGE_VAL;
      if (*from == '-') real = -real;
    }
    return out = Value::real(real, true), Status();
  }

  Heap& heap_;
  string_view text_;
  const char* what_;
  size_t at_ = 0;
};

// Python's json.dumps.
class Writer {
 public:
  Writer(Run& run, const JsonStyle& style) : run_(run), style_(style), out_(&run.heap) {}

  Value run(const Value& value) {
    write(value, 0);
    return run_.make_text(out_, is_said(value));
  }

 private:
  void write(const Value& value, uint32_t depth) {
    if (!run_.spend(1)) return;
    if (depth > kMaxValueDepth) return void(run_.refuse(WEIR_ERR_UNSUPPORTED, "values are nested too deeply"));
    if (!run_.has_room(out_.size())) return;
    if (value.is_string()) return write_text(value.view());
    if (value.is_sequence() && value.sequence().kind <= SeqKind::kGroup) return write_list(value.sequence(), depth);
    if (value.is_dict()) return write_dict(value.dict(), depth);
    if (!put_plain(value)) run_.error("Object of type %s is not JSON serializable", type_name(value));
  }

  bool put_plain(const Value& value) {
    if (value.is_none()) return out_ += "null", true;
    if (value.is(Type::kBool)) return out_ += value.integer() != 0 ? "true" : "false", true;
    if (!value.is_number() && !value.is(Type::kLargeInt)) return false;
    const double number = value.is(Type::kFloat) ? value.real() : 0;
    if (value.is(Type::kFloat) && std::isnan(number)) return out_ += "NaN", true;
    if (value.is(Type::kFloat) && std::isinf(number)) return out_ += number < 0 ? "-Infinity" : "Infinity", true;
    put_repr(out_, value);
    return true;
  }

  void line(uint32_t depth) {
    if (style_.indent < 0) return;
    out_ += '\n';
    const uint64_t n = static_cast<uint64_t>(style_.indent) * depth;
    if (run_.has_room(out_.size() + n)) out_.append(n, ' ');
  }

  void write_list(const Seq& list, uint32_t depth) {
    out_ += '[';
    for (size_t i = 0; i < list.items.size() && !run_.failed(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      line(depth + 1);
      write(list.items[i], depth + 1);
    }
    if (!list.items.empty()) line(depth);
    out_ += ']';
  }

  void write_dict(const Dict& dict, uint32_t depth) {
    std::pmr::vector<const Dict::Entry*> entries(&run_.heap);
    for (const Dict::Entry& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys) {
      bool is_mixed = false;
      merge_sort(entries, [&](const auto* a, const auto* b) {
        const int order = compare(a->key, b->key);
        is_mixed = is_mixed || order == 2;
        return order == -1;
      });
      if (is_mixed) return void(run_.error("keys of different types cannot be ordered"));
    }
    out_ += '{';
    for (size_t i = 0; i < entries.size() && !run_.failed(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      line(depth + 1);
      write_key(entries[i]->key);
      out_ += style_.key_separator;
      write(entries[i]->value, depth + 1);
    }
    if (!entries.empty()) line(depth);
    out_ += '}';
  }

  void write_key(const Value& key) {
    if (key.is_string()) return write_text(key.view());
    out_ += '"';
    if (!put_plain(key)) run_.error("keys must be str, int, float, bool or None, not %s", type_name(key));
    out_ += '"';
  }

  void write_text(string_view text) {
    if (!run_.has_room(out_.size() + text.size())) return;
    out_ += '"';
    for (size_t i = 0, n; i < text.size(); i += n) {
      const uint32_t code = code_at(text, i, n);
      constexpr string_view kLetters = "\"\\\b\f\n\r\t", kNames = "\"\\bfnrt";
      const size_t letter = code < 0x80 ? kLetters.find(static_cast<char>(code)) : string_view::npos;
      char escape[16];
      if (letter != string_view::npos) {
        out_.append("\\").push_back(kNames[letter]);
      } else if (code >= 0x20 && (code < 0x7F || !style_.ascii_only || code == 0x7F)) {
        out_.append(text.substr(i, n));
      } else if (code < 0x10000 || code >= 0x110000) {
        c_format(escape, sizeof(escape), "\\u%04x", code < 0x10000 ? code : 0xDC00 + (code - 0x110000));
        out_ += escape;
      } else {
        c_format(escape, sizeof(escape), "\\u%04x\\u%04x", 0xD800 + ((code - 0x10000) >> 10),
                 0xDC00 + ((code - 0x10000) & 0x3FF));
        out_ += escape;
      }
    }
    out_ += '"';
  }

  Run& run_;
  const JsonStyle& style_;
  std::pmr::string out_;
};

}  // namespace

Status read_json(Heap& heap, string_view text, const char* what, Value& out) {
  return Reader(heap, text, what).run(out);
}

Value to_json(Run& run, const Value& value, const JsonStyle& style) { return Writer(run, style).run(value); }

}  // namespace weir::jinja
