// Rows of KV pages, defined: rounding to their formats, and back.
#include "ops/kv_format.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "quant/half.h"

namespace weir {
namespace {

constexpr uint16_t kNanScale = 0x7FC0;

uint32_t magnitude_bits(float x) { return std::bit_cast<uint32_t>(x) & 0x7FFFFFFFu; }

// The largest magnitude of a block; as bits they order as numbers do, and what is not finite comes last.
uint32_t most_of(const float* block) {
  uint32_t most = 0;
  for (uint32_t i = 0; i < kScaleElements; ++i) most = std::max(most, magnitude_bits(block[i]));
  return most;
}
bool is_finite(uint32_t magnitude) { return magnitude < 0x7F800000u; }

// A scale whose inverse is finite, or 0.
uint16_t scale_of(float step) { return std::fabs(step) < 0x1p-126f ? 0 : f32_to_bf16(step); }
float inverse_of(uint16_t scale) { return scale == 0 ? 0.0f : 1.0f / bf16_to_f32(scale); }

void store_q8(const float* block, int8_t* codes, uint16_t& scale) {
  const uint32_t most = most_of(block);
  scale = is_finite(most) ? scale_of(std::bit_cast<float>(most) * (1.0f / 127.0f)) : kNanScale;
  const float inverse = is_finite(most) ? inverse_of(scale) : 0.0f;
  for (uint32_t i = 0; i < kScaleElements; ++i) {
    const float x = inverse == 0.0f ? 0.0f : block[i] * inverse;
    codes[i] = static_cast<int8_t>(std::clamp(std::nearbyint(x), -127.0f, 127.0f));
  }
}

// The element of the largest magnitude gets code 0, -8 steps, so that all 16 codes can occur; where that of the other
// sign is as large, it loses a step.
void store_q4(const float* block, uint8_t* codes, uint16_t& scale) {
  const uint32_t most = most_of(block);
  const auto [low, high] = std::minmax_element(block, block + kScaleElements);
  const float extreme = is_finite(most) ? (*high > -*low ? *high : *low) : 0.0f;
  scale = is_finite(most) ? scale_of(extreme * -0.125f) : kNanScale;
  const float inverse = is_finite(most) ? inverse_of(scale) : 0.0f;
  const auto code = [&](uint32_t i) {
    const float x = inverse == 0.0f ? 0.0f : block[i] * inverse;
    return static_cast<uint32_t>(std::clamp(std::nearbyint(x), -8.0f, 7.0f) + 8.0f);
  };
  for (uint32_t i = 0; i < kScaleElements; i += 2) codes[i / 2] = static_cast<uint8_t>(code(i) | code(i + 1) << 4);
}

}  // namespace

const char* kv_format_name(KvFormat format) {
  switch (format) {
    case KvFormat::kBf16:
      return "bf16";
    case KvFormat::kQ8:
      return "q8";
    case KvFormat::kK8V4:
      return "k8v4";
    case KvFormat::kK4V4:
      return "k4v4";
  }
  return "?";
}

void store_row(const PagePart<uint16_t>& part, uint32_t token, const float* row) {
  uint16_t* codes = part.codes(token);
  uint16_t* scales = part.scales(token);
  if (part.format == RowFormat::kBf16) {
    for (size_t i = 0; i < part.head_dim; ++i) codes[i] = f32_to_bf16(row[i]);
    return;
  }
  const bool is_q8 = part.format == RowFormat::kQ8;
  for (size_t i = 0; i < part.head_dim; i += kScaleElements) {
    uint16_t& scale = scales[i / kScaleElements];
    if (is_q8) store_q8(row + i, reinterpret_cast<int8_t*>(codes) + i, scale);
    if (!is_q8) store_q4(row + i, reinterpret_cast<uint8_t*>(codes) + i / 2, scale);
  }
}

void store_by_channel(const PagePart<uint16_t>& part, const uint16_t* rows, uint32_t n) {
  store_channels(part, 0, part.head_dim, rows, n);
}

void store_channels(const PagePart<uint16_t>& part, size_t first, size_t end, const uint16_t* rows, uint32_t n) {
  for (size_t i = first; i < end; ++i) {
    const auto at = [&](uint32_t t) { return bf16_to_f32(rows[t * (end - first) + i - first]); };
    float low = at(0), high = low;
    bool finite = true;
    for (uint32_t t = 0; t < n; ++t) {
      const float x = at(t);
      finite = finite && std::isfinite(x);
      low = x < low ? x : low;
      high = x > high ? x : high;
    }
    const float range = high - low;
    finite = finite && std::isfinite(range);
    const uint16_t step = finite ? scale_of(range * (1.0f / 15.0f)) : 0;
    const float inverse = inverse_of(step);
    part.scales(0)[i] = finite ? f32_to_bf16(low) : kNanScale;
    part.scales(0)[part.head_dim + i] = step;
    for (uint32_t t = 0; t < n; ++t) {
      const float steps = finite ? (at(t) - low) * inverse : 0.0f;
      const auto code = static_cast<uint32_t>(std::clamp(std::nearbyint(steps), 0.0f, 15.0f));
      uint8_t& pair = reinterpret_cast<uint8_t*>(part.codes(t))[i / 2];
      pair = static_cast<uint8_t>(i % 2 == 0 ? code : pair | code << 4);
    }
  }
}

void load_row(const PagePart<const uint16_t>& part, uint32_t token, float* row) {
  for (size_t i = 0; i < part.head_dim; ++i) row[i] = load_element(part, token, i);
}

}  // namespace weir
