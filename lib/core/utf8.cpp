// Well-formed UTF-8, sequence by sequence.
#include "core/utf8.h"

#include <cstring>

namespace weir {

Utf8Lead utf8_lead(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

static uint8_t byte_at(std::string_view text, size_t i) { return static_cast<uint8_t>(text[i]); }

Utf8Step utf8_step(std::string_view text) {
  const Utf8Lead lead = utf8_lead(byte_at(text, 0));
  if (lead.n_bytes == 0) return {Utf8Kind::kInvalid, 1};
  for (uint8_t i = 1; i < lead.n_bytes; ++i) {
    if (i == text.size()) return {Utf8Kind::kIncomplete, i};
    const uint8_t byte = byte_at(text, i);
    const uint8_t min = i == 1 ? lead.second_min : 0x80, max = i == 1 ? lead.second_max : 0xBF;
    if (byte < min || byte > max) return {Utf8Kind::kInvalid, i};
  }
  return {Utf8Kind::kComplete, lead.n_bytes};
}

size_t utf8_valid_prefix(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    uint64_t word = 0;
    if (text.size() - at >= sizeof(word)) {  // mostly ASCII: eight bytes at once
      std::memcpy(&word, text.data() + at, sizeof(word));
      if ((word & 0x8080808080808080u) == 0) {
        at += sizeof(word);
        continue;
      }
    }
    const Utf8Step step = utf8_step(text.substr(at));
    if (step.kind != Utf8Kind::kComplete) return at;
    at += step.n_bytes;
  }
  return at;
}

uint32_t utf8_code_point(std::string_view text, size_t n_bytes) {
  uint32_t code = byte_at(text, 0);
  if (n_bytes > 1) code &= 0x7Fu >> n_bytes;
  for (size_t i = 1; i < n_bytes; ++i) code = code << 6 | (byte_at(text, i) & 0x3Fu);
  return code;
}

}  // namespace weir
