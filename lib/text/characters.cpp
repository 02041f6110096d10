// Characters as Python's str has them.
#include "text/characters.h"

#include "core/utf8.h"

namespace weir {

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
  if (code >= 0x10000) put(0xF0 | code >> 18);
  if (code >= 0x800) put(code >= 0x10000 ? 0x80 | (code >> 12 & 0x3F) : 0xE0 | code >> 12);
  put(code >= 0x800 ? 0x80 | (code >> 6 & 0x3F) : 0xC0 | code >> 6);
  put(0x80 | (code & 0x3F));
}

bool is_space(uint32_t code) {
  return (code >= 0x09 && code <= 0x0D) || (code >= 0x1C && code <= 0x20) || code == 0x85 || code == 0xA0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 || code == 0x202F ||
         code == 0x205F || code == 0x3000;
}

namespace {

struct Letters {  // in lower case
  uint32_t first, last, distance;
  int32_t to_upper;
};
constexpr Letters kLetters[] = {
    {'a', 'z', 1, -32},        {0xe0, 0xf6, 1, -32},      {0xf8, 0xfe, 1, -32},       {0xff, 0xff, 1, 121},
    {0x101, 0x12f, 2, -1},     {0x133, 0x137, 2, -1},     {0x13a, 0x148, 2, -1},      {0x14b, 0x177, 2, -1},
    {0x17a, 0x17e, 2, -1},     {0x1a1, 0x1a5, 2, -1},     {0x1b0, 0x1b0, 1, -1},      {0x1ce, 0x1dc, 2, -1},
    {0x1df, 0x1ef, 2, -1},     {0x1f9, 0x21f, 2, -1},     {0x223, 0x233, 2, -1},      {0x247, 0x24f, 2, -1},
    {0x259, 0x259, 1, -202},   {0x371, 0x373, 2, -1},     {0x377, 0x377, 1, -1},      {0x37b, 0x37d, 1, 130},
    {0x3ac, 0x3ac, 1, -38},    {0x3ad, 0x3af, 1, -37},    {0x3b1, 0x3c1, 1, -32},     {0x3c3, 0x3cb, 1, -32},
    {0x3cc, 0x3cc, 1, -64},    {0x3cd, 0x3ce, 1, -63},    {0x3d7, 0x3d7, 1, -8},      {0x3d9, 0x3ef, 2, -1},
    {0x3f2, 0x3f2, 1, 7},      {0x3f3, 0x3f3, 1, -116},   {0x3f8, 0x3f8, 1, -1},      {0x3fb, 0x3fb, 1, -1},
    {0x430, 0x44f, 1, -32},    {0x450, 0x45f, 1, -80},    {0x461, 0x481, 2, -1},      {0x48b, 0x4bf, 2, -1},
    {0x4c2, 0x4ce, 2, -1},     {0x4cf, 0x4cf, 1, -15},    {0x4d1, 0x52f, 2, -1},      {0x561, 0x586, 1, -48},
    {0x10d0, 0x10fa, 1, 3008}, {0x10fd, 0x10ff, 1, 3008}, {0x13f8, 0x13fd, 1, -8},    {0x1e01, 0x1e95, 2, -1},
    {0x1ea1, 0x1eff, 2, -1},   {0x1f00, 0x1f07, 1, 8},    {0x1f10, 0x1f15, 1, 8},     {0x1f20, 0x1f27, 1, 8},
    {0x1f30, 0x1f37, 1, 8},    {0x1f40, 0x1f45, 1, 8},    {0x1f51, 0x1f57, 2, 8},     {0x1f60, 0x1f67, 1, 8},
    {0x1f72, 0x1f75, 1, 86},   {0x2170, 0x217f, 1, -16},  {0x24d0, 0x24e9, 1, -26},   {0x2c30, 0x2c5f, 1, -48},
    {0x2c68, 0x2c6c, 2, -1},   {0x2c81, 0x2ce3, 2, -1},   {0x2d00, 0x2d25, 1, -7264}, {0xa641, 0xa66d, 2, -1},
    {0xff41, 0xff5a, 1, -32},  {0x10428, 0x1044f, 1, -40}};

uint32_t other_case(uint32_t code, bool to_up) {
  for (const auto& [first, last, distance, add] : kLetters) {
    const uint32_t at = to_up ? code : static_cast<uint32_t>(static_cast<int32_t>(code) - add);
    if (at >= first && at <= last && (at - first) % distance == 0)
      return to_up ? static_cast<uint32_t>(static_cast<int32_t>(at) + add) : at;
  }
  return code;
}

}  // namespace

uint32_t to_lower(uint32_t code) { return other_case(code, false); }

uint32_t to_upper(uint32_t code) {
  constexpr std::pair<uint32_t, uint32_t> kOneWay[] = {{0xB5, 0x39C}, {0x131, 'I'}, {0x17F, 'S'}, {0x3C2, 0x3A3}};
  for (const auto& [low, up] : kOneWay) {
    if (code == low) return up;
  }
  return other_case(code, true);
}

}  // namespace weir
