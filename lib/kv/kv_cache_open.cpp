// Open pages: the page that takes tokens, in bf16 beside a pool in fewer bits.
#include <algorithm>

#include "kv/kv_cache.h"
#include "quant/half.h"

namespace weir {

void KvCache::copy_open(uint32_t from, uint32_t to) {
  opened_[to] = opened_[from];
  const size_t n = shape_.n_streams() * open_elements();
  if (!pages_elsewhere_) std::copy_n(open_ + from * n, n, open_ + to * n);
  if (pages_elsewhere_) note_move({from, to, 0, 0});
}

void KvCache::note_move(const OpenMove& move) {
  if (n_moves_ < kMaxMoves) moves_[n_moves_++] = move;
}

// Rows of tokens from position `end` on are none: they were taken back, or announced and never came.
void KvCache::forget_open(uint32_t end) {
  for (OpenPage& o : opened_) {
    if (o.page == end / kPageTokens) o.n_rows = std::min(o.n_rows, end % kPageTokens);
    if (o.page != kNoPage && (o.page > end / kPageTokens || o.n_rows == 0)) o = {};
  }
}

// Before tokens up to position `end` are appended: their last page may take the place of the one that was open when the
// prompt began.
void KvCache::open_for(uint32_t end) {
  forget_open(n_tokens_);
  if (shape_.open_page_bytes() == 0 || end % kPageTokens == 0) return;
  const uint32_t page = end / kPageTokens, half = page % 2, begin = prompt_begin_ / kPageTokens;
  if (opened_[half].page != page && opened_[half].has(begin, 1) && begin * kPageTokens != prompt_begin_)
    copy_open(half, kCovered);
  opened_[half] = {page, end % kPageTokens};
}

// After a truncation: the last page takes tokens again. What it was in bf16 may be gone; it is what it was rounded to
// then.
void KvCache::reopen(uint32_t end) {
  const uint32_t page = end / kPageTokens, n_rows = end % kPageTokens, half = page % 2;
  forget_open(end);
  n_moves_ = static_cast<uint32_t>(
      std::remove_if(moves_, moves_ + n_moves_, [&](const OpenMove& m) { return !m.is_copy() && m.page > page; }) -
      moves_);
  if (shape_.open_page_bytes() == 0 || n_rows == 0) return;
  const bool is_covered = opened_[kCovered].has(page, n_rows), is_there = opened_[half].has(page, n_rows);
  if (!is_there && is_covered) copy_open(kCovered, half);
  if (!is_there && !is_covered) {
    opened_[half] = {page, n_rows};
    if (pages_elsewhere_) note_move({half, half, page, n_rows});
  }
  for (uint32_t s = 0; !pages_elsewhere_ && s < shape_.n_streams(); ++s) {
    const uint32_t slot = slot_of(s, page), d = shape_.head_dim;
    if (slot == kNoSlot) continue;
    uint16_t *const open = open_data(s, page), *const stored = page_data(slot);
    const auto copy = [&](const PagePart<const uint16_t>& from, const PagePart<uint16_t>& to) {
      for (uint32_t token = 0; token < n_rows; ++token) {
        for (uint32_t i = 0; i < d; ++i) to.codes(token)[i] = f32_to_bf16(load_element(from, token, i));
      }
    };
    if (!is_there && !is_covered) {
      copy(keys_in<const uint16_t>(shape_.format, stored, d), keys_in(KvFormat::kBf16, open, d));
      copy(values_in<const uint16_t>(shape_.format, stored, d), values_in(KvFormat::kBf16, open, d));
    }
    // Later tokens had their share in the steps of channels.
    if (is_by_channel(key_format(shape_.format))) store_by_channel(keys_in(shape_.format, stored, d), open, n_rows);
  }
}

}  // namespace weir
