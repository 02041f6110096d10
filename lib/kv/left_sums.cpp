// Sums of the keys and values that have left windows; see left_sums.h.
#include "kv/left_sums.h"

#include <algorithm>
#include <cmath>

namespace weir {

void add_token(KvFormat format, const uint16_t* page, uint32_t token, uint32_t head_dim, float* sums) {
  const auto keys = keys_in(format, page, head_dim), values = values_in(format, page, head_dim);
  for (uint32_t i = 0; i < head_dim; ++i) sums[i] += load_element(keys, token, i);
  for (uint32_t i = 0; i < head_dim; ++i) sums[head_dim + i] += load_element(values, token, i);
}

void LeftSums::lay_out(Arenas& arenas) {
  if (!is_on()) return;
  sums_ = arenas.tables.take<LeftSum>(windows_->n_streams);
  values_ = arenas.tables.take<float>(uint64_t{windows_->n_streams} * n_values());
  scratch_ = arenas.tables.take<float>(n_values());
}

void LeftSums::reset() {
  if (!is_on()) return;
  std::fill_n(sums_, windows_->n_streams, LeftSum{});
  std::fill_n(values_, size_t{windows_->n_streams} * n_values(), 0.0f);
}

void LeftSums::copy_from(const Part& part, uint32_t /*n_tokens*/) {
  if (!is_on()) return;
  const auto& other = static_cast<const LeftSums&>(part);
  std::copy_n(other.sums_, windows_->n_streams, sums_);
  std::copy_n(other.values_, size_t{windows_->n_streams} * n_values(), values_);
}

void LeftSums::add_page(uint32_t stream, KvFormat format, const uint16_t* page, uint32_t first_pos, uint32_t len) {
  float* const to = values(stream);
  for (uint32_t token = 0; token < len; ++token) add_token(format, page, token, head_dim_, to);
  of(stream).n_tokens += len;
  of(stream).end = first_pos + len;
}

Status LeftSums::can_cut(uint32_t n_tokens, bool lossy) const {
  for (uint32_t s = 0, rank = 0; is_on() && !lossy && rank < windows_->n_streams; ++s) {
    if (!windows_->has(s) || sums_[rank++].end <= n_tokens) continue;
    return fail(WEIR_ERR_NOT_FOUND,
                "a rewind to %u tokens: the compensation token of layer %u, KV head %u holds later ones", n_tokens,
                s / n_kv_heads_, s % n_kv_heads_);
  }
  return {};
}

void LeftSums::cut(uint32_t n_tokens) {
  for (uint32_t i = 0; is_on() && i < windows_->n_streams; ++i) {
    if (sums_[i].end <= n_tokens) continue;
    sums_[i] = {};
    std::fill_n(values_ + size_t{i} * n_values(), n_values(), 0.0f);
  }
}

// The sums are of tokens between the sinks and the pages of the window.
Status LeftSums::stream_io(Io& io, uint32_t stream, uint32_t front, uint32_t window) const {
  LeftSum& sum = of(stream);
  const std::span<float> sums(values(stream), n_values());
  WEIR_TRY(io.value(sum.n_tokens));
  WEIR_TRY(io.value(sum.end));
  WEIR_TRY(io.array(sums));
  if (io.saves()) return {};
  const bool is_between = sum.end % kPageTokens == 0 && sum.end <= window && sum.n_tokens % kPageTokens == 0 &&
                          sum.n_tokens <= sum.end - std::min(sum.end, front * kPageTokens);
  const bool is_finite = std::all_of(sums.begin(), sums.end(), [](float x) { return std::isfinite(x); });
  if (is_between && is_finite && (sum.n_tokens != 0 || sum.end == 0)) return {};
  return io.damaged("stream %u has sums of %u tokens up to %u", stream, sum.n_tokens, sum.end);
}

}  // namespace weir
