// JSON; see json_reader.h.
#include "core/json_reader.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "core/utf8.h"

namespace weir {

class JsonText::Reader {
 public:
  Reader(JsonText& out, std::string_view text, const char* what) : out_(out), text_(text), what_(what) {}

  Status run() {
    WEIR_TRY(read(kNone, 0, 0, 0));
    skip_spaces();
    return at_ == text_.size() ? Status() : wrong("something follows the value");
  }

 private:
  Status wrong(const char* why) const {
    const std::string_view before = text_.substr(0, at_);
    const size_t line = static_cast<size_t>(std::count(before.begin(), before.end(), '\n')) + 1;
    return fail(WEIR_ERR_INVALID_ARG, "%s, line %zu, byte %zu: %s", what_, line, at_ - (before.rfind('\n') + 1) + 1,
                why);
  }
  void skip_spaces() { at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size()); }
  bool skip(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  Status read(Id parent, uint32_t key, uint32_t key_bytes, uint32_t depth) {
    skip_spaces();
    if (depth > kMaxDepth) return wrong("values are nested too deeply");
    if (at_ == text_.size()) return wrong("it ends too early");
    const Id id = out_.values_.size();
    if (id == kMaxValues)
      return fail(WEIR_ERR_UNSUPPORTED, "%s: it has more than the %u values that are read", what_, kMaxValues);
    out_.values_.push_back({kNull, 0, kNone, parent, key, key_bytes, 0, 0});
    const char c = peek();
    if (c == '{' || c == '[') return read_members(id, c == '{', depth);
    if (c == '"') {
      out_.values_[id].kind = kString;
      return read_text(out_.values_[id].text, out_.values_[id].text_bytes);
    }
    if (c == '-' || (c >= '0' && c <= '9')) return read_number(out_.values_[id]);
    if (skip("null")) return {};
    const bool is_true = skip("true");
    if (!is_true && !skip("false")) return wrong("a value was expected");
    out_.values_[id].kind = is_true ? kTrue : kFalse;
    return {};
  }

  Status read_members(Id id, bool is_object, uint32_t depth) {
    out_.values_[id].kind = is_object ? kObject : kArray;
    ++at_;
    const char* end = is_object ? "}" : "]";
    skip_spaces();
    if (skip(end)) return {};
    for (Id before = kNone;;) {
      uint32_t key = 0, key_bytes = 0;
      if (is_object) {
        skip_spaces();
        if (peek() != '"') return wrong("a name in quotes was expected");
        WEIR_TRY(read_text(key, key_bytes));
        skip_spaces();
        if (!skip(":")) return wrong("':' was expected");
      }
      const Id member = out_.values_.size();
      WEIR_TRY(read(id, key, key_bytes, depth + 1));
      if (before != kNone) out_.values_[before].next = member;
      before = member;
      ++out_.values_[id].n;
      skip_spaces();
      if (skip(end)) return {};
      if (!skip(",")) return wrong(is_object ? "',' or '}' was expected" : "',' or ']' was expected");
    }
  }

  Status read_number(Value& value) {
    const size_t begin = at_;
    const auto digits = [&] {
      const size_t first = at_;
      while (peek() >= '0' && peek() <= '9') ++at_;
      return at_ > first;
    };
    skip("-");
    if (!skip("0") && !digits()) return wrong("a digit was expected");
    if (skip(".") && !digits()) return wrong("a digit was expected");
    if (skip("e") || skip("E")) {
      if (!skip("-")) skip("+");
      if (!digits()) return wrong("a digit was expected");
    }
    value.kind = kNumber;
    value.text = out_.texts_.size();
    value.text_bytes = static_cast<uint32_t>(at_ - begin);
    out_.texts_.append(text_.data() + begin, value.text_bytes);
    return {};
  }

  Status read_text(uint32_t& at, uint32_t& n) {
    const uint32_t first = out_.texts_.size();
    ++at_;
    while (true) {
      const size_t end = std::min(text_.find_first_of("\"\\", at_), text_.size());
      const std::string_view plain = text_.substr(at_, end - at_);
      for (const char c : plain) {
        if (static_cast<uint8_t>(c) < 0x20) return wrong("a control character in a text");
      }
      const size_t n_valid = utf8_valid_prefix(plain);
      if (n_valid != plain.size()) {
        at_ += n_valid;
        return wrong("it is not UTF-8");
      }
      out_.texts_.append(plain.data(), static_cast<uint32_t>(plain.size()));
      at_ = end;
      if (at_ == text_.size()) return wrong("a text does not end");
      if (skip("\"")) break;
      ++at_;
      WEIR_TRY(read_escape());
    }
    at = first;
    n = out_.texts_.size() - first;
    return {};
  }

  Status read_escape() {
    static constexpr char kNames[] = "\"\\/bfnrt", kMeant[] = "\"\\/\b\f\n\r\t";
    const char c = peek();
    const char* at = c == '\0' ? nullptr : std::strchr(kNames, c);
    if (at != nullptr) {
      ++at_;
      out_.texts_.push_back(kMeant[at - kNames]);
      return {};
    }
    uint32_t code = 0;
    if (!read_unit(code)) return wrong("an escape that JSON does not have");
    if (code >= 0xD800 && code < 0xDC00) {
      uint32_t low = 0;
      if (!skip("\\") || !read_unit(low) || low < 0xDC00 || low > 0xDFFF) return wrong("half of a surrogate pair");
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    } else if (code >= 0xDC00 && code <= 0xDFFF) {
      return wrong("half of a surrogate pair");
    }
    char bytes[4];
    const uint32_t n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (uint32_t i = n; i-- > 1; code >>= 6) bytes[i] = static_cast<char>(0x80 | (code & 0x3F));
    bytes[0] = static_cast<char>(n == 1 ? code : ((0xF00u >> n) | code));
    out_.texts_.append(bytes, n);
    return {};
  }

  bool read_unit(uint32_t& code) {
    if (!skip("u")) return false;
    code = 0;
    for (uint32_t i = 0; i < 4; ++i) {
      const char c = peek();
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) return false;
      code = code * 16 + static_cast<uint32_t>(digit);
      ++at_;
    }
    return true;
  }

  JsonText& out_;
  std::string_view text_;
  const char* what_;
  size_t at_ = 0;
};

Status JsonText::read(std::string_view text, const char* what) {
  values_.clear();
  texts_.clear();
  if (text.size() > kMaxBytes) {
    return fail(WEIR_ERR_UNSUPPORTED, "%s: %zu bytes are more than the %u that are read", what, text.size(), kMaxBytes);
  }
  return Reader(*this, text, what).run();
}

JsonText::Id JsonText::find(Id object, std::string_view key) const {
  Id found = kNone;
  if (kind(object) != kObject) return found;
  for (Id id = first(object); id != kNone; id = next(id)) {
    if (this->key(id) == key) found = id;
  }
  return found;
}

bool JsonText::equal(Id a, Id b) const {
  if (kind(a) != kind(b)) return false;
  if (kind(a) == kString) return text(a) == text(b);
  if (kind(a) == kNumber) {
    Decimal x, y;
    return x.read(text(a)) && y.read(text(b)) ? compare(x, y) == 0 : text(a) == text(b);
  }
  if (size(a) != size(b)) return false;
  Id other = first(b);
  for (Id id = first(a); id != kNone; id = next(id)) {
    const Id same = kind(a) == kObject ? find(b, key(id)) : other;
    if (same == kNone || !equal(id, same)) return false;
    if (kind(a) == kArray) other = next(other);
  }
  return true;
}

// Written from the end.
const char* JsonText::path(Id id, char* out, uint32_t capacity) const {
  char* at = out + capacity - 1;
  *at = '\0';
  const auto put = [&](std::string_view part) {
    const auto room = static_cast<size_t>(at - out);
    if (part.size() + 1 > room) return false;
    at -= part.size();
    part.copy(at, part.size());
    return true;
  };
  for (; parent(id) != kNone; id = parent(id)) {
    bool fits;
    if (kind(parent(id)) == kObject) {
      fits = put(key(id));
    } else {
      uint32_t index = 0;
      for (Id item = first(parent(id)); item != id; item = next(item)) ++index;
      char number[16];
      fits = put({number, static_cast<size_t>(std::snprintf(number, sizeof(number), "%u", index))});
    }
    if (!fits || !put("/")) return at;
  }
  put("#");
  return at;
}

bool Decimal::read(std::string_view number) {
  *this = {};
  size_t at = 0;
  negative = number.starts_with('-');
  if (negative) ++at;
  bool in_fraction = false;
  int64_t point = 0;  // digits before it, without zeros in front
  for (; at < number.size() && number[at] != 'e' && number[at] != 'E'; ++at) {
    if (number[at] == '.') {
      in_fraction = true;
      continue;
    }
    if (n_digits == 0 && number[at] == '0') {
      if (in_fraction) --point;
      continue;
    }
    if (n_digits == kMaxDigits) return false;
    digits[n_digits++] = number[at];
    if (!in_fraction) ++point;
  }
  int64_t power = 0;
  if (at < number.size()) {
    const bool down = number.substr(at + 1).starts_with('-');
    for (++at; at < number.size(); ++at) {
      if (number[at] >= '0' && number[at] <= '9') power = std::min<int64_t>(power * 10 + (number[at] - '0'), 1 << 30);
    }
    if (down) power = -power;
  }
  while (n_digits != 0 && digits[n_digits - 1] == '0') --n_digits;
  if (n_digits == 0) {
    negative = false;
    return true;
  }
  point += power;
  exponent = static_cast<int32_t>(point);
  return point >= -static_cast<int64_t>(kMaxDigits) && point <= static_cast<int64_t>(kMaxDigits);
}

int compare(const Decimal& a, const Decimal& b) {
  if (a.negative != b.negative) return a.negative ? -1 : 1;
  const int sign = a.negative ? -1 : 1;
  if (a.n_digits == 0 || b.n_digits == 0) return a.n_digits == b.n_digits ? 0 : a.n_digits == 0 ? -1 : 1;
  if (a.exponent != b.exponent) return a.exponent < b.exponent ? -sign : sign;
  const uint32_t n = std::max(a.n_digits, b.n_digits);
  for (uint32_t i = 0; i < n; ++i) {
    const char x = i < a.n_digits ? a.digits[i] : '0', y = i < b.n_digits ? b.digits[i] : '0';
    if (x != y) return x < y ? -sign : sign;
  }
  return 0;
}

}  // namespace weir
