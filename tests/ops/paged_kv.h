// KV pages for op tests: random streams in shuffled slots. Everything that a page does not hold is NaN, so that reading
// it is detected.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

#include "ops/ops.h"
#include "quant/half.h"
#include "tests/ops/harness.h"

namespace weir::test {

struct KvShapeSpec {
  uint32_t n_kv_heads = 1, head_dim = 64;
  uint32_t n_pages = 4;     // of every stream
  uint32_t last_len = 16;   // tokens of the last page
  bool gaps = false;        // every third page (but the first) was evicted
  uint32_t spare_rows = 3;  // capacity beyond n_pages
  float key_scale = 1.0f;
  DigestKind digest = DigestKind::kMinMax;
  KvFormat format = KvFormat::kBf16;
};

class PagedKv {
 public:
  static constexpr uint16_t kNan = 0x7FC0;

  PagedKv(const KvShapeSpec& spec, uint64_t seed) : spec_(spec), capacity_(spec.n_pages + spec.spare_rows) {
    Random random(seed);
    const size_t n_rows = size_t{spec.n_kv_heads} * capacity_;
    slots_.resize(n_rows);
    for (size_t i = 0; i < n_rows; ++i) slots_[i] = static_cast<uint32_t>(i);
    for (size_t i = n_rows; i > 1; --i) std::swap(slots_[i - 1], slots_[random.below(static_cast<uint32_t>(i))]);
    first_pos_.assign(n_rows, 0);
    len_.assign(n_rows, 0);
    n_pages_.assign(spec.n_kv_heads, spec.n_pages);
    pool_.assign(n_rows * page_elements(), kNan);
    digests_.assign(n_rows * digest_elements(spec.digest, spec.head_dim), kNan);
    if (spec.format != KvFormat::kBf16) open_.assign(2 * spec.n_kv_heads * open_elements(), kNan);
    for (uint32_t head = 0; head < spec.n_kv_heads; ++head) {
      for (uint32_t row = 0; row < spec.n_pages; ++row) fill_page(random, head, row);
    }
  }

  KvView view() {
    KvView v;
    v.pool = pool_.data();
    v.format = spec_.format;
    v.open = open_.empty() ? nullptr : open_.data();
    v.open_half = spec_.n_kv_heads * open_elements();
    v.digests = digests_.data();
    v.digest = spec_.digest;
    v.slots = slots_.data();
    v.first_pos = first_pos_.data();
    v.len = len_.data();
    v.n_pages = n_pages_.data();
    v.capacity = capacity_;
    v.n_kv_heads = spec_.n_kv_heads;
    v.head_dim = spec_.head_dim;
    return v;
  }
  uint32_t capacity() const { return capacity_; }
  size_t at(uint32_t head, uint32_t row) const { return size_t{head} * capacity_ + row; }
  uint32_t& slot(uint32_t head, uint32_t row) { return slots_[at(head, row)]; }
  uint32_t& first_pos(uint32_t head, uint32_t row) { return first_pos_[at(head, row)]; }
  uint32_t& len(uint32_t head, uint32_t row) { return len_[at(head, row)]; }
  uint32_t& n_pages(uint32_t head) { return n_pages_[head]; }
  std::vector<uint16_t>& open() { return open_; }
  // A key of a page in bf16.
  uint16_t* key(uint32_t head, uint32_t row, uint32_t token) {
    return &pool_[slot(head, row) * page_elements() + size_t{token} * spec_.head_dim];
  }
  uint16_t* value(uint32_t head, uint32_t row, uint32_t token) { return key(head, row, kPageTokens + token); }
  std::vector<uint16_t>& pool() { return pool_; }
  std::vector<uint16_t>& digests() { return digests_; }
  // One after the last token.
  uint32_t end_pos() const { return first_pos_[spec_.n_pages - 1] + spec_.last_len; }

  // Moves every page to another slot; contents stay.
  void move_pages(uint64_t seed) {
    Random random(seed);
    for (size_t i = slots_.size(); i > 1; --i) {
      const size_t j = random.below(static_cast<uint32_t>(i)), n = page_elements();
      std::swap_ranges(pool_.begin() + static_cast<ptrdiff_t>(slots_[i - 1] * n),
                       pool_.begin() + static_cast<ptrdiff_t>(slots_[i - 1] * n + n),
                       pool_.begin() + static_cast<ptrdiff_t>(slots_[j] * n));
      std::swap(slots_[i - 1], slots_[j]);
    }
  }

 private:
  size_t page_elements() const { return kv_page_bytes(spec_.format, spec_.head_dim) / sizeof(uint16_t); }
  size_t open_elements() const { return kv_page_bytes(KvFormat::kBf16, spec_.head_dim) / sizeof(uint16_t); }

  void fill_page(Random& random, uint32_t head, uint32_t row) {
    first_pos(head, row) = kPageTokens * (spec_.gaps ? row + (row + 1) / 2 : row);
    len(head, row) = row + 1 == spec_.n_pages ? spec_.last_len : kPageTokens;
    if (spec_.format != KvFormat::kBf16) return fill_rows(random, head, row);
    for (uint32_t t = 0; t < len(head, row); ++t) {
      for (size_t i = 0; i < spec_.head_dim; ++i) {
        key(head, row, t)[i] = f32_to_bf16(spec_.key_scale * random.normal());
        value(head, row, t)[i] = f32_to_bf16(random.normal());
      }
    }
  }

  // In another format; a page that takes tokens also has them as they are.
  void fill_rows(Random& random, uint32_t head, uint32_t row) {
    const KvView v = view();
    const size_t d = spec_.head_dim;
    uint16_t* const page = &pool_[slot(head, row) * page_elements()];
    std::vector<uint16_t> keys;
    for (uint32_t t = 0; t < len(head, row); ++t) {
      const std::vector<float> k = random.normals(d, spec_.key_scale), x = random.normals(d);
      std::transform(k.begin(), k.end(), std::back_inserter(keys), f32_to_bf16);
      const auto store = [&](KvFormat format, uint16_t* to) {
        const auto part = keys_in(format, to, d);
        if (!is_by_channel(part.format)) store_row(part, t, k.data());
        store_row(values_in(format, to, d), t, x.data());
      };
      store(spec_.format, page);
      if (v.is_open(head, row)) store(KvFormat::kBf16, v.open_page(head, row));
    }
    const auto part = keys_in(spec_.format, page, d);
    if (is_by_channel(part.format)) store_by_channel(part, keys.data(), len(head, row));
  }

  KvShapeSpec spec_;
  uint32_t capacity_;
  std::vector<uint32_t> slots_, first_pos_, len_, n_pages_;
  std::vector<uint16_t> pool_, open_, digests_;
};

}  // namespace weir::test
