// Head norms, rotary embedding and appending to the KV pages, defined.
// What is stored is the rotated f32 key in the format of the pages (ops/kv_format.h); kMinMax digests summarise what is
// stored.
// Paper: Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", arXiv:2104.09864, sec. 3.2.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/rope_append.h"
#include "quant/half.h"

namespace weir {

uint32_t page_keys_until(const RopeAppendArgs& a, uint32_t kv_head, uint32_t tok, size_t first, uint16_t* rows) {
  const size_t d = a.kv.head_dim, table = size_t{kv_head} * a.kv.capacity;
  const uint32_t offset = a.pos + tok - a.kv.first_pos[table + a.append_row[kv_head]];
  const uint32_t n = offset % kPageTokens + 1, n_new = std::min(n, tok + 1);
  const uint16_t* open = a.kv.open_page(kv_head, a.append_row[kv_head] + offset / kPageTokens);
  for (uint32_t t = 0; t < n; ++t, rows += kChannelsAtOnce) {
    if (t < n - n_new) {
      std::copy_n(open + t * d + first, kChannelsAtOnce, rows);
      continue;
    }
    const float* from = a.k + (size_t{tok + 1 - (n - t)} * a.kv.n_kv_heads + kv_head) * d + first;
    std::transform(from, from + kChannelsAtOnce, rows, f32_to_bf16);
  }
  return n;
}

void digest_channels(const PagePart<const uint16_t>& keys, uint32_t n_rows, uint16_t* high, uint16_t* low) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (size_t i = 0; i < keys.head_dim; ++i) {
    float most = -kInf, least = kInf;
    for (uint32_t t = 0; t < n_rows; ++t) {
      const float key = load_element(keys, t, i);
      most = std::isnan(key) ? kInf : std::max(most, key);
      least = std::isnan(key) ? -kInf : std::min(least, key);
    }
    high[i] = f32_to_bf16(most);
    low[i] = f32_to_bf16(least);
  }
}

namespace ref {
namespace {

void store_keys(const RopeAppendArgs& a, uint32_t tok, uint32_t kv_head, uint32_t row) {
  const size_t d = a.kv.head_dim;
  uint16_t* page = a.kv.pool + a.kv.slots[size_t{kv_head} * a.kv.capacity + row] * a.kv.page_elements();
  uint32_t n = 0;
  for (size_t first = 0; first < d; first += kChannelsAtOnce) {
    uint16_t rows[kPageTokens * kChannelsAtOnce];
    n = page_keys_until(a, kv_head, tok, first, rows);
    store_channels(keys_in(a.kv.format, page, d), first, first + kChannelsAtOnce, rows, n);
  }
  if (a.kv.digest != DigestKind::kMinMax) return;
  uint16_t* high = a.kv.digest_of(kv_head, row);
  digest_channels(a.kv.stored_keys_of(kv_head, row), n, high, high + d);
}

void norm_head(float* x, const float* weight, float eps, size_t head_dim) {
  double sum = 0.0;
  for (size_t i = 0; i < head_dim; ++i) sum += double{x[i]} * double{x[i]};
  const auto inverse = static_cast<float>(1.0 / std::sqrt(sum / static_cast<double>(head_dim) + double{eps}));
  for (size_t i = 0; i < head_dim; ++i) x[i] = x[i] * inverse * weight[i];
}

// y = x rotated; y may be x. cos_sin: [rope_dim / 2, 2].
void rotate_head(const float* x, float* y, const float* cos_sin, const RopeAppendArgs& a) {
  const size_t half = a.rope_dim / 2;
  for (size_t i = 0; i < half; ++i) {
    const size_t first = a.layout == RopeLayout::kAdjacent ? 2 * i : i;
    const size_t second = a.layout == RopeLayout::kAdjacent ? 2 * i + 1 : i + half;
    const float cos = cos_sin[2 * i], sin = cos_sin[2 * i + 1];
    const float x0 = x[first], x1 = x[second];
    y[first] = x0 * cos - x1 * sin;
    y[second] = x0 * sin + x1 * cos;
  }
  for (size_t i = a.rope_dim; i < a.kv.head_dim; ++i) y[i] = x[i];
}

void store_token(const RopeAppendArgs& a, uint32_t tok, uint32_t kv_head) {
  const size_t d = a.kv.head_dim;
  const size_t table = size_t{kv_head} * a.kv.capacity;
  const uint32_t offset = a.pos + tok - a.kv.first_pos[table + a.append_row[kv_head]];
  const uint32_t row = a.append_row[kv_head] + offset / kPageTokens;
  const uint32_t in_page = offset % kPageTokens;
  const size_t slot = a.kv.slots[table + row];
  const size_t from = (size_t{tok} * a.kv.n_kv_heads + kv_head) * d;
  const bool by_channel = is_by_channel(key_format(a.kv.format));
  const auto store = [&](KvFormat format, uint16_t* page) {
    const auto keys = keys_in(format, page, d);
    if (!is_by_channel(keys.format)) store_row(keys, in_page, a.k + from);
    store_row(values_in(format, page, d), in_page, a.v + from);
  };
  store(a.kv.format, a.kv.pool + slot * a.kv.page_elements());
  if (a.kv.is_open(kv_head, row)) store(KvFormat::kBf16, a.kv.open_page(kv_head, row));
  if (by_channel && (in_page + 1 == kPageTokens || tok + 1 == a.n_tok)) store_keys(a, tok, kv_head, row);
  if (by_channel || a.kv.digest != DigestKind::kMinMax) return;
  const auto keys = a.kv.stored_keys_of(kv_head, row);
  uint16_t *high = a.kv.digest_of(kv_head, row), *low = high + d;
  for (size_t i = 0; i < d; ++i) {
    const uint16_t key = f32_to_bf16(load_element(keys, in_page, i));
    if (in_page == 0 || bf16_to_f32(key) > bf16_to_f32(high[i])) high[i] = key;
    if (in_page == 0 || bf16_to_f32(key) < bf16_to_f32(low[i])) low[i] = key;
  }
}

}  // namespace

Status rope_append(OpContext&, const RopeAppendArgs& a) {
  const size_t d = a.kv.head_dim;
  for (uint32_t tok = 0; tok < a.n_tok; ++tok) {
    const float* cos_sin = a.cos_sin + size_t{tok} * a.rope_dim;
    for (uint32_t head = 0; head < a.n_heads; ++head) {
      const size_t at = (size_t{tok} * a.n_heads + head) * d;
      if (a.q_norm != nullptr) norm_head(a.q + at, a.q_norm, a.norm_eps, d);
      if (a.q_sink != nullptr) rotate_head(a.q + at, a.q_sink + at, a.cos_sin_sink + size_t{tok} * a.rope_dim, a);
      rotate_head(a.q + at, a.q + at, cos_sin, a);
    }
    for (uint32_t head = 0; head < a.kv.n_kv_heads; ++head) {
      const size_t at = (size_t{tok} * a.kv.n_kv_heads + head) * d;
      if (a.k_norm != nullptr) norm_head(a.k + at, a.k_norm, a.norm_eps, d);
      rotate_head(a.k + at, a.k + at, cos_sin, a);
      store_token(a, tok, head);
    }
  }
  return {};
}

}  // namespace ref
}  // namespace weir
