// Sums of the keys and values that have left windows; see left_sums.h.
#include "kv/left_sums.h"

#include <algorithm>

#include "quant/half.h"

namespace weir {

void add_token(const uint16_t* page, uint32_t token, uint32_t head_dim, float* sums) {
  const uint16_t* key = page + size_t{token} * head_dim;
  const uint16_t* value = key + size_t{kPageTokens} * head_dim;
  for (uint32_t i = 0; i < head_dim; ++i) sums[i] += bf16_to_f32(key[i]);
  for (uint32_t i = 0; i < head_dim; ++i) sums[head_dim + i] += bf16_to_f32(value[i]);
}

void LeftSums::lay_out(const StreamWindows& windows, uint32_t head_dim, Arena& arena) {
  windows_ = &windows;
  head_dim_ = head_dim;
  if (!is_on()) return;
  sums_ = arena.take<LeftSum>(windows.n_streams);
  values_ = arena.take<float>(uint64_t{windows.n_streams} * n_values());
  scratch_ = arena.take<float>(n_values());
}

void LeftSums::reset() {
  if (!is_on()) return;
  std::fill_n(sums_, windows_->n_streams, LeftSum{});
  std::fill_n(values_, size_t{windows_->n_streams} * n_values(), 0.0f);
}

void LeftSums::copy_from(const LeftSums& other) {
  if (!is_on()) return;
  std::copy_n(other.sums_, windows_->n_streams, sums_);
  std::copy_n(other.values_, size_t{windows_->n_streams} * n_values(), values_);
}

void LeftSums::add_page(uint32_t stream, const uint16_t* page, uint32_t first_pos, uint32_t len) {
  float* const to = values(stream);
  for (uint32_t token = 0; token < len; ++token) add_token(page, token, head_dim_, to);
  of(stream).n_tokens += len;
  of(stream).end = first_pos + len;
}

void LeftSums::cut(uint32_t n_tokens) {
  for (uint32_t i = 0; is_on() && i < windows_->n_streams; ++i) {
    if (sums_[i].end <= n_tokens) continue;
    sums_[i] = {};
    std::fill_n(values_ + size_t{i} * n_values(), n_values(), 0.0f);
  }
}

}  // namespace weir
