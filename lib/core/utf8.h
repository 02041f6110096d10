// UTF-8 of untrusted bytes: one sequence at a time, by the table of well-formed byte sequences of the Unicode standard
// (3.9, table 3-7). An ill-formed stretch is cut into its maximal subparts, the usual practice for replacing it by
// U+FFFD.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace weir {

enum class Utf8Kind : uint8_t {
  kComplete,    // a whole sequence
  kInvalid,     // these bytes can never become a sequence
  kIncomplete,  // the text ends inside a sequence that may still become whole
};

struct Utf8Step {
  Utf8Kind kind;
  uint8_t n_bytes;  // 1..4
};

// What may follow a first byte: how many bytes the sequence has, 0 if the byte begins none, and the range of the second
// one, which is what excludes overlong forms, surrogates and code points beyond U+10FFFF. Others are 0x80 to 0xBF.
struct Utf8Lead {
  uint8_t n_bytes, second_min, second_max;
};
Utf8Lead utf8_lead(uint8_t byte);

// The sequence at the front of `text`, which is not empty.
Utf8Step utf8_step(std::string_view text);

// Bytes before the first one that is not part of a whole sequence; text.size() for valid text.
size_t utf8_valid_prefix(std::string_view text);

// The code point of the valid sequence of `n_bytes` bytes at the front of `text`.
uint32_t utf8_code_point(std::string_view text, size_t n_bytes);

}  // namespace weir
