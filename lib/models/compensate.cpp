// Compensation tokens, merged into attention after it; see compensate.h. Plain code: it reads as much as one page a
// stream and step.
#include "models/compensate.h"

#include <algorithm>
#include <cmath>

#include "ops/attn_paged.h"
#include "ops/soft_cap.h"

namespace weir {
namespace {

// Sums over the tokens that a row of a stream no longer sees: those that have left, and those of pages in the table
// that are behind the window. Rows come in ascending order.
class Unseen {
 public:
  Unseen(const AttnPagedArgs& head, uint32_t kv_head, const LeftSum& left, const float* values, float* sums)
      : kv_(head.kv),
        table_(size_t{kv_head} * kv_.capacity),
        n_rows_(kv_.n_pages[kv_head]),
        sinks_(head.n_sink),
        sums_(sums),
        n_(left.n_tokens) {
    std::copy_n(values, size_t{2} * kv_.head_dim, sums_);
  }

  // Adds the tokens of the table at positions below `end` that are not there yet.
  void add_until(uint64_t end) {
    for (; row_ < n_rows_; ++row_, token_ = 0) {
      const uint16_t* page = kv_.pool + kv_.slots[table_ + row_] * kv_.page_elements();
      for (; token_ < kv_.len[table_ + row_]; ++token_) {
        const uint32_t pos = kv_.first_pos[table_ + row_] + token_;
        if (pos >= end) return;
        if (pos < sinks_) continue;
        add_token(kv_.format, page, token_, kv_.head_dim, sums_);
        ++n_;
      }
    }
  }
  uint32_t n() const { return n_; }
  // log of the weight that the mean of them has for a query, before the softmax.
  float log_weight(const AttnPagedArgs& a, const float* q) const {
    float dot = 0.0f;
    for (uint32_t i = 0; i < kv_.head_dim; ++i) dot += q[i] * sums_[i];
    const auto n = static_cast<float>(n_);
    return soft_capped(a.scale * (dot / n), a.soft_cap) + std::log(n);
  }
  float mean_value(uint32_t i) const { return sums_[kv_.head_dim + i] / static_cast<float>(n_); }

 private:
  const KvView& kv_;
  size_t table_;
  uint32_t n_rows_, sinks_;
  float* sums_;
  uint32_t n_, row_ = 0, token_ = 0;
};

// Merges the token into one row of one head (docs/algorithms.md, "Merging partial attention"). Returns the share that
// is left to the others.
float merge(const AttnPagedArgs& a, uint32_t tok, uint32_t head, const Unseen& unseen) {
  const size_t at = size_t{tok} * a.n_heads + head, d = a.kv.head_dim;
  const float log_weight = unseen.log_weight(a, a.q + at * d);
  float& lse = a.lse[at];
  const float high = std::max(lse, log_weight);
  const float seen = std::exp(lse - high), mean = std::exp(log_weight - high), total = seen + mean;
  float* const out = a.out + at * d;
  for (uint32_t i = 0; i < d; ++i) out[i] = (out[i] * seen + unseen.mean_value(i) * mean) / total;
  lse = high + std::log(total);
  return seen / total;
}

}  // namespace

void compensate_head(const AttnPagedArgs& a, uint32_t kv_head, const LeftSum& left, const float* values, float* sums) {
  const uint32_t group = a.n_heads / a.kv.n_kv_heads;
  Unseen unseen(a, kv_head, left, values, sums);
  for (uint32_t tok = 0; tok < a.n_tok; ++tok) {
    const uint64_t seen_end = uint64_t{a.pos} + tok + 1;
    unseen.add_until(seen_end - std::min<uint64_t>(seen_end, a.window));
    if (unseen.n() == 0) continue;
    for (uint32_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      const float rest = merge(a, tok, head, unseen);
      if (a.page_mass == nullptr || tok + 1 < a.n_tok) continue;
      float* const mass = a.page_mass + size_t{head} * a.kv.capacity;
      for (uint32_t row = 0; row < a.kv.n_pages[kv_head]; ++row) mass[row] *= rest;
    }
  }
}

void compensate(const KvCache& kv, uint32_t layer, const AttnPagedArgs& attn) {
  if (!has_compensation(kv, attn)) return;
  for (uint32_t kv_head = 0; kv_head < attn.kv.n_kv_heads; ++kv_head) {
    const uint32_t stream = layer * attn.kv.n_kv_heads + kv_head;
    if (!has_own_window(attn, kv_head)) continue;
    const LeftSums& left = kv.left();
    compensate_head(args_of_head(attn, kv_head), kv_head, left.of(stream), left.values(stream), left.scratch());
  }
}

}  // namespace weir
