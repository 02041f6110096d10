// Formats of KV pages. A page has a part of keys and, behind it, one of values, each of kPageTokens rows in a format of
// its own: first the codes of all rows, then their scales. Rows in fewer than 16 bits are quantised when they are
// appended, so a page is always whole in its format. While it takes tokens, its rows are in bf16 as well, in the
// stream's open page, and attended there: heads that look at the latest tokens alone lose the most by rounding
// (docs/results/formats).
//
// By rows, a block of 32 elements shares a scale in bf16: 127 steps to the largest magnitude in 8 bits, 8 in 4.
// Decoding is exact in f32: a code of at most 8 bits times a scale with 8 bits of mantissa. A block with an element
// that is no finite number has the scale NaN, so that its token is as visible as it is in bf16. Values of 4 bits are
// those of rows that were rotated by a Hadamard matrix (ops/hadamard.h), which spreads outliers of single channels over
// the block; attention then sums rotated values, and its output is rotated back.
//
// By channels, a channel of a page's keys has its lowest number and a step of a fifteenth of its range, so that
// channels with a bias or outliers cost the others nothing. Every row that is appended rounds the page's keys anew,
// from the open page. Decoding rounds once, whether the product is fused or not. A channel with an element that is no
// finite number, or whose range is none, is NaN for all of the page's tokens.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/half.h"

namespace weir {

// Tokens of a KV page, the only supported size. Plans and files record it, so it can become an option without breaking
// them.
inline constexpr uint32_t kPageTokens = 16;

enum class RowFormat : uint8_t {
  kBf16,
  kQ8,           // int8 codes
  kQ4,           // codes 0..15, of which 8 are taken; byte i of a row has elements 2 i and, in its upper half, 2 i + 1
  kQ4ByChannel,  // codes 0..15 in the same order; scales are [head_dim] lowest numbers, then [head_dim] steps
};

// The numbers are those of weir_kv_format.
enum class KvFormat : uint8_t {
  kBf16 = 0,
  kQ8 = 1,    // keys and values in 8 bits
  kK8V4 = 2,  // keys in 8 bits, values in 4
  kK4V4 = 3,  // keys in 4 bits by channels, values in 4
};
inline constexpr int32_t kKvFormats = 4;

// Sets of formats.
constexpr uint32_t format_bit(KvFormat format) { return 1u << static_cast<uint32_t>(format); }
inline constexpr uint32_t kAllKvFormats = (1u << kKvFormats) - 1;

// Elements that share a scale. Head sizes are multiples of it, unless all is bf16.
inline constexpr uint32_t kScaleElements = 32;

const char* kv_format_name(KvFormat format);  // static text: "bf16", "q8", "k8v4", "k4v4"

constexpr RowFormat key_format(KvFormat format) {
  switch (format) {
    case KvFormat::kBf16:
      return RowFormat::kBf16;
    case KvFormat::kQ8:
    case KvFormat::kK8V4:
      return RowFormat::kQ8;
    case KvFormat::kK4V4:
      return RowFormat::kQ4ByChannel;
  }
  return RowFormat::kBf16;
}
constexpr RowFormat value_format(KvFormat format) {
  switch (format) {
    case KvFormat::kBf16:
      return RowFormat::kBf16;
    case KvFormat::kQ8:
      return RowFormat::kQ8;
    case KvFormat::kK8V4:
    case KvFormat::kK4V4:
      return RowFormat::kQ4;
  }
  return RowFormat::kBf16;
}
constexpr bool rotates_values(KvFormat format) { return value_format(format) == RowFormat::kQ4; }
constexpr bool is_by_channel(RowFormat format) { return format == RowFormat::kQ4ByChannel; }

constexpr size_t row_code_bytes(RowFormat format, size_t head_dim) {
  return format == RowFormat::kBf16 ? 2 * head_dim : format == RowFormat::kQ8 ? head_dim : head_dim / 2;
}
constexpr size_t row_scales(RowFormat format, size_t head_dim) {  // of each row; none where they are the page's
  return format == RowFormat::kBf16 || is_by_channel(format) ? 0 : head_dim / kScaleElements;
}
// Scales of a part with so many rows.
constexpr size_t part_scales(RowFormat format, size_t head_dim, size_t n_rows) {
  return is_by_channel(format) ? 2 * head_dim : n_rows * row_scales(format, head_dim);
}
// The size of a part of a page.
constexpr size_t part_bytes(RowFormat format, size_t head_dim) {
  return kPageTokens * row_code_bytes(format, head_dim) + part_scales(format, head_dim, kPageTokens) * sizeof(uint16_t);
}
constexpr size_t kv_page_used_bytes(KvFormat format, size_t head_dim) {
  return part_bytes(key_format(format), head_dim) + part_bytes(value_format(format), head_dim);
}
// The size of a page. Pages begin where lines of memory do; what is left of the last one is 0.
constexpr size_t kv_page_bytes(KvFormat format, size_t head_dim) {
  constexpr size_t kLine = 64;
  return (kv_page_used_bytes(format, head_dim) + kLine - 1) / kLine * kLine;
}

// Keys or values of a page, [part_bytes]. Memory of pages is addressed in units of 16 bits, the size of a bf16.
template <class Unit>  // uint16_t, or const
struct PagePart {
  Unit* units;
  RowFormat format;
  size_t head_dim;

  Unit* codes(uint32_t token) const { return units + token * row_code_bytes(format, head_dim) / sizeof(uint16_t); }
  Unit* scales(uint32_t token) const {
    return units + kPageTokens * row_code_bytes(format, head_dim) / sizeof(uint16_t) +
           token * row_scales(format, head_dim);
  }
};
template <class Unit>
constexpr PagePart<Unit> keys_in(KvFormat format, Unit* page, size_t head_dim) {
  return {page, key_format(format), head_dim};
}
template <class Unit>
constexpr PagePart<Unit> values_in(KvFormat format, Unit* page, size_t head_dim) {
  return {page + part_bytes(key_format(format), head_dim) / sizeof(uint16_t), value_format(format), head_dim};
}

// The definitions, which vector code agrees with bit for bit: a row of `part`, [head_dim], whose format is by rows.
void store_row(const PagePart<uint16_t>& part, uint32_t token, const float* row);
// The first n rows of `part`, whose format is by channels, from bf16 [n, head_dim]; or only channels [first, end), an
// even number of them, from bf16 [n, end - first].
void store_by_channel(const PagePart<uint16_t>& part, const uint16_t* rows, uint32_t n);
void store_channels(const PagePart<uint16_t>& part, size_t first, size_t end, const uint16_t* rows, uint32_t n);
void load_row(const PagePart<const uint16_t>& part, uint32_t token, float* row);
inline float load_element(const PagePart<const uint16_t>& part, uint32_t token, size_t i) {
  const uint16_t* codes = part.codes(token);
  if (part.format == RowFormat::kBf16) return bf16_to_f32(codes[i]);
  const uint16_t* scales = part.scales(token);
  if (part.format == RowFormat::kQ8)
    return static_cast<float>(reinterpret_cast<const int8_t*>(codes)[i]) * bf16_to_f32(scales[i / kScaleElements]);
  const int pair = reinterpret_cast<const uint8_t*>(codes)[i / 2], code = i % 2 == 0 ? pair & 15 : pair >> 4;
  if (part.format == RowFormat::kQ4) return static_cast<float>(code - 8) * bf16_to_f32(scales[i / kScaleElements]);
  return bf16_to_f32(scales[i]) + static_cast<float>(code) * bf16_to_f32(scales[part.head_dim + i]);
}

}  // namespace weir
