// Spellings of JSON strings.
#include "text/constraint/json_strings.h"

#include "core/utf8.h"

namespace weir::constraint {

namespace {

struct Escape {
  char code, letter;
};
constexpr Escape kShort[] = {{'"', '"'},  {'\\', '\\'}, {'/', '/'},  {'\b', 'b'},
                             {'\f', 'f'}, {'\n', 'n'},  {'\r', 'r'}, {'\t', 't'}};

ExprId hex_digit(Exprs& x, uint32_t digit) {
  if (digit < 10) return x.bytes(static_cast<uint8_t>('0' + digit), static_cast<uint8_t>('0' + digit));
  const auto letter = static_cast<uint8_t>('a' + digit - 10), capital = static_cast<uint8_t>('A' + digit - 10);
  return x.alt(x.bytes(letter, letter), x.bytes(capital, capital));
}

// Digits first..last, letters in either case.
ExprId hex_digits(Exprs& x, uint32_t first, uint32_t last) {
  PodVector<ExprId> all(x.memory());
  for (uint32_t d = first; d <= last; ++d) all.push_back(hex_digit(x, d));
  return x.alt({all.data(), all.size()});
}

// \uXXXX of one unit.
ExprId unit(Exprs& x, uint32_t code) {
  ExprId out = x.text("\\u");
  for (uint32_t shift = 16; shift > 0;) {
    shift -= 4;
    out = x.cat(out, hex_digit(x, (code >> shift) & 15));
  }
  return out;
}

void append_escape(uint8_t byte, PodVector<char>& out) {
  static constexpr char kHex[] = "0123456789abcdef";
  for (const Escape& e : kShort) {
    if (static_cast<uint8_t>(e.code) != byte || e.code == '/') continue;
    out.push_back('\\');
    out.push_back(e.letter);
    return;
  }
  out.append("\\u00", 4);
  out.push_back(kHex[byte >> 4]);
  out.push_back(kHex[byte & 15]);
}

bool must_escape(uint8_t byte) { return byte < 0x20 || byte == '"' || byte == '\\'; }

}  // namespace

ExprId any_character(Exprs& x) {
  static constexpr CodeRange kPlain[] = {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0x10FFFF}};
  const ExprId digit = hex_digits(x, 0, 15), two = x.repeat(digit, 2, 2);
  const ExprId d = hex_digit(x, 13), pair_first = x.cat(x.cat(d, hex_digits(x, 8, 11)), two);
  const ExprId pair_last = x.cat(x.cat(d, hex_digits(x, 12, 15)), two);
  const ExprId alone = x.alt(x.cat(x.alt(hex_digits(x, 0, 12), hex_digits(x, 14, 15)), x.repeat(digit, 3, 3)),
                             x.cat(x.cat(d, hex_digits(x, 0, 7)), two));
  PodVector<ExprId> all(x.memory());
  all.push_back(x.characters(kPlain));
  const ExprId u = x.text("\\u");
  all.push_back(x.cat(u, alone));
  all.push_back(x.cat(x.cat(u, pair_first), x.cat(u, pair_last)));
  for (const Escape& e : kShort) {
    const char text[2] = {'\\', e.letter};
    all.push_back(x.text({text, 2}));
  }
  return x.alt({all.data(), all.size()});
}

ExprId usual_character(Exprs& x, CodeSet& set) {
  PodVector<ExprId> all(x.memory());
  for (uint32_t code = 0; code < 0x60; ++code) {
    if (!must_escape(static_cast<uint8_t>(code)) || !set.has(code)) continue;
    for (const Escape& e : kShort) {
      const char text[2] = {'\\', e.letter};
      if (static_cast<uint8_t>(e.code) == code) all.push_back(x.text({text, 2}));
    }
    if (code < 0x20) all.push_back(unit(x, code));
    set.remove(code);
  }
  if (!set.ranges().empty()) all.push_back(x.characters(set.ranges()));
  return x.alt({all.data(), all.size()});
}

ExprId every_spelling(Exprs& x, std::string_view text) {
  PodVector<ExprId> parts(x.memory()), ways(x.memory());
  for (size_t n = 0; !text.empty(); text.remove_prefix(n)) {
    n = utf8_step(text).n_bytes;
    const uint32_t code = utf8_code_point(text, n);
    ways.clear();
    if (code >= 0x80 || !must_escape(static_cast<uint8_t>(code))) ways.push_back(x.text(text.substr(0, n)));
    for (const Escape& e : kShort) {
      const char escape[2] = {'\\', e.letter};
      if (static_cast<uint8_t>(e.code) == code) ways.push_back(x.text({escape, 2}));
    }
    if (code < 0x10000) {
      ways.push_back(unit(x, code));
    } else {
      ways.push_back(x.cat(unit(x, 0xD800 + ((code - 0x10000) >> 10)), unit(x, 0xDC00 + (code & 0x3FF))));
    }
    parts.push_back(x.alt({ways.data(), ways.size()}));
  }
  return x.cat({parts.data(), parts.size()});
}

void append_quoted(std::string_view text, PodVector<char>& out) {
  out.push_back('"');
  for (const char c : text) {
    if (must_escape(static_cast<uint8_t>(c))) {
      append_escape(static_cast<uint8_t>(c), out);
    } else {
      out.push_back(c);
    }
  }
  out.push_back('"');
}

}  // namespace weir::constraint
