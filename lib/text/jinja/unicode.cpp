// Characters as Python's str has them.
#include "text/jinja/unicode.h"

#include <span>

#include "core/utf8.h"

namespace weir::jinja {
namespace {

struct CaseRange {
  uint32_t first, last;
  uint16_t step;
  int32_t add;
};

#include "text/jinja/unicode.inc"

constexpr uint32_t kFirstOfTables = 0x80;

bool is_in(std::span<const uint16_t> runs, uint32_t code) {
  uint32_t end = kFirstOfTables;
  bool has = false;
  for (const uint16_t run : runs) {
    end += run;
    if (code < end) return has;
    has = !has;
  }
  return false;
}

uint32_t other_case(std::span<const CaseRange> ranges, uint32_t code) {
  for (const CaseRange& range : ranges) {
    if (code < range.first) return code;
    if (code <= range.last && (code - range.first) % range.step == 0)
      return static_cast<uint32_t>(static_cast<int32_t>(code) + range.add);
  }
  return code;
}

}  // namespace

uint32_t code_at(std::string_view text, size_t at, size_t& n_bytes) {
  n_bytes = 1;
  const auto byte = static_cast<uint8_t>(text[at]);
  if (byte < 0x80) return byte;
  const std::string_view rest = text.substr(at);
  const Utf8Step step = utf8_step(rest);
  if (step.kind != Utf8Kind::kComplete) return 0x110000u + byte;
  n_bytes = step.n_bytes;
  return utf8_code_point(rest, n_bytes);
}

void put_code(std::pmr::string& out, uint32_t code) {
  const auto put = [&](uint32_t byte) { out += static_cast<char>(byte); };
  if (code < 0x80 || code >= 0x110000) return put(code < 0x80 ? code : code - 0x110000);
  if (code < 0x800) {
    put(0xC0 | code >> 6);
  } else {
    if (code < 0x10000) {
      put(0xE0 | code >> 12);
    } else {
      put(0xF0 | code >> 18);
      put(0x80 | (code >> 12 & 0x3F));
    }
    put(0x80 | (code >> 6 & 0x3F));
  }
  put(0x80 | (code & 0x3F));
}

bool is_space(uint32_t code) {
  return (code >= 0x09 && code <= 0x0D) || (code >= 0x1C && code <= 0x20) || code == 0x85 || code == 0xA0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 || code == 0x202F ||
         code == 0x205F || code == 0x3000;
}

bool is_letter(uint32_t code) {
  if (code < kFirstOfTables) return (code | 0x20) >= 'a' && (code | 0x20) <= 'z';
  return is_in(kLetters, code);
}

bool is_printable(uint32_t code) {
  if (code < kFirstOfTables) return code >= 0x20 && code < 0x7F;
  return code < 0x110000 && !is_in(kUnprintable, code);
}

uint32_t to_lower(uint32_t code) {
  if (code < kFirstOfTables) return code >= 'A' && code <= 'Z' ? code + 0x20 : code;
  return other_case(kToLower, code);
}

uint32_t to_upper(uint32_t code) {
  if (code < kFirstOfTables) return code >= 'a' && code <= 'z' ? code - 0x20 : code;
  return other_case(kToUpper, code);
}

std::string_view long_upper(uint32_t code) {
  if (code == 0xDF) return "SS";
  constexpr std::string_view kLigatures[] = {"FF", "FI", "FL", "FFI", "FFL", "ST", "ST"};
  return code >= 0xFB00 && code <= 0xFB06 ? kLigatures[code - 0xFB00] : std::string_view();
}

}  // namespace weir::jinja
