// Page digests, defined: what each kind keeps of the stored keys.
// Papers: Tang et al., "Quest", arXiv:2406.10774, sec. 3.2 (kMinMax); Chen et al., "ArkVale", NeurIPS 2024, sec. 5.2
// (cuboid, sphere, centroid). kMeanStd is our own: mean and standard deviation of every channel.
#include <algorithm>
#include <cmath>

#include "ops/page_digest.h"
#include "ops/rope_append.h"
#include "ops/sketch.h"
#include "quant/half.h"

namespace weir {
namespace {

using Keys = PagePart<const uint16_t>;

// Statistics of one channel of a page.
struct Channel {
  float high, low, mean, mean_square;
  float middle() const { return (high + low) / 2.0f; }
};

Channel channel_of(const Keys& keys, uint32_t len, size_t i) {
  Channel c = {load_element(keys, 0, i), load_element(keys, 0, i), 0.0f, 0.0f};
  for (uint32_t t = 0; t < len; ++t) {
    const float key = load_element(keys, t, i);
    c.high = std::max(c.high, key);
    c.low = std::min(c.low, key);
    c.mean += key;
  }
  c.mean /= static_cast<float>(len);
  for (uint32_t t = 0; t < len; ++t) {
    const float away = load_element(keys, t, i) - c.mean;
    c.mean_square += away * away;
  }
  c.mean_square /= static_cast<float>(len);
  return c;
}

float mean_distance(const Keys& keys, uint32_t len, size_t i, float from) {
  float sum = 0.0f;
  for (uint32_t t = 0; t < len; ++t) sum += std::fabs(load_element(keys, t, i) - from);
  return sum / static_cast<float>(len);
}

// Mean distance of the keys from the centre, out[0..d), as stored.
float mean_radius(const Keys& keys, uint32_t len, const uint16_t* centre) {
  float sum = 0.0f;
  for (uint32_t t = 0; t < len; ++t) {
    float square = 0.0f;
    for (size_t i = 0; i < keys.head_dim; ++i) {
      const float away = load_element(keys, t, i) - bf16_to_f32(centre[i]);
      square += away * away;
    }
    sum += std::sqrt(square);
  }
  return sum / static_cast<float>(len);
}

}  // namespace

void digest_page(DigestKind kind, const Keys& keys, uint32_t len, uint16_t* out) {
  if (kind == DigestKind::kSketch) return sketch_page(keys, len, out);
  const size_t d = keys.head_dim;
  if (kind == DigestKind::kMinMax && is_by_channel(keys.format)) return digest_channels(keys, len, out, out + d);
  for (size_t i = 0; i < d; ++i) {
    const Channel c = channel_of(keys, len, i);
    switch (kind) {
      case DigestKind::kNone:
      case DigestKind::kSketch:
        return;
      case DigestKind::kMinMax:
        out[i] = f32_to_bf16(c.high);
        out[d + i] = f32_to_bf16(c.low);
        break;
      case DigestKind::kCuboidMean: {
        const float r = mean_distance(keys, len, i, c.middle());
        out[i] = f32_to_bf16(c.middle() + r);
        out[d + i] = f32_to_bf16(c.middle() - r);
        break;
      }
      case DigestKind::kSphereMean:
        out[i] = f32_to_bf16(c.middle());
        break;
      case DigestKind::kCentroid:
        out[i] = f32_to_bf16(c.mean);
        break;
      case DigestKind::kMeanStd:
        out[i] = f32_to_bf16(c.mean);
        out[d + i] = f32_to_bf16(std::sqrt(c.mean_square));
        break;
    }
  }
  if (kind != DigestKind::kSphereMean) return;
  out[d] = f32_to_bf16(mean_radius(keys, len, out));
  out[d + 1] = 0;
}

namespace ref {

Status page_digest(OpContext&, const PageDigestArgs& a) {
  for (uint32_t kv_head = 0; kv_head < a.kv.n_kv_heads; ++kv_head) {
    const uint32_t first = a.first_row[kv_head];
    const uint32_t end = std::min(a.kv.n_pages[kv_head], first + a.n_rows);
    for (uint32_t row = first; row < end; ++row) {
      if (a.kv.len[size_t{kv_head} * a.kv.capacity + row] < kPageTokens) continue;
      digest_page(a.kv.digest, a.kv.keys_of(kv_head, row), kPageTokens, a.kv.digest_of(kv_head, row));
    }
  }
  return {};
}

}  // namespace ref
}  // namespace weir
