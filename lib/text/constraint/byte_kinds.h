// Kinds of bytes, as bits: what a stretch of text has, and what a state of an automaton can read, in one number each.
// Characters that grammars often tell apart have a kind each; a kind that has several only makes fewer steps shorter.
#pragma once

#include <array>
#include <cstdint>

namespace weir::constraint {

inline constexpr uint32_t kAsciiKinds = (1u << 25) - 1;
// Well-formed characters of several bytes, or beginnings of them, by their length; those that begin with E2, line and
// paragraph separators among them, for themselves.
inline constexpr uint32_t kWideKinds[] = {1u << 25, 1u << 26, 1u << 27, 1u << 28};
inline constexpr uint32_t kAllWideKinds = 15u << 25;
// What a place in a text is: it has bytes of no such character; its first byte is not the first one of a character.
inline constexpr uint32_t kStray = 1u << 30, kInside = 1u << 31;

inline constexpr std::array<uint32_t, 256> kKindOfByte = [] {
  std::array<uint32_t, 256> out = {};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    out[byte] = byte < ' ' || byte == 0x7F     ? 1u << 0
                : byte >= 'a' && byte <= 'z'   ? 1u << 1
                : byte >= 'A' && byte <= 'Z'   ? 1u << 2
                : byte >= '0' && byte <= '9'   ? 1u << 3
                : byte >= 0xC2 && byte <= 0xDF ? kWideKinds[0]
                : byte == 0xE2                 ? kWideKinds[1]
                : byte >= 0xE0 && byte <= 0xEF ? kWideKinds[2]
                : byte >= 0xF0 && byte <= 0xF4 ? kWideKinds[3]
                                               : kStray;
  }
  constexpr const char* kMarks[] = {" ", "\n", "\"", "\\", "'",  ",",  "-",    ".",    "/",  ":", "@",
                                    "_", "()", "[]", "{}", "<>", "!?", "$%&|", "^~`#", "*+", ";="};
  for (uint32_t i = 0; i < std::size(kMarks); ++i) {
    for (const char* c = kMarks[i]; *c != 0; ++c) out[static_cast<uint8_t>(*c)] = 1u << (4 + i);
  }
  return out;
}();
constexpr uint32_t kind_of(uint8_t byte) { return kKindOfByte[byte]; }

}  // namespace weir::constraint
