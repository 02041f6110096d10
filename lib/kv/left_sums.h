// What has left the windows of single streams (StreamWindows), added up: keys as they were stored and values in f32,
// and how many tokens these are. Attention makes a compensation token from them (docs/algorithms.md,
// "RazorAttention"). The sums hold exactly the tokens that the stream's table does not hold any more, so going back in
// a conversation changes them only where it goes back to before a token that is in them.
#pragma once

#include <cstdint>

#include "core/memory.h"
#include "kv/left_sum.h"
#include "kv/part.h"
#include "kv/stream_pages.h"
#include "ops/kv_format.h"

namespace weir {

class LeftSums final : public Part {
 public:
  // Before lay_out(). There are sums of the streams of `windows`, which must stay where it is, if these compensate.
  void set_shape(const StreamWindows& windows, uint32_t n_kv_heads, uint32_t head_dim) {
    windows_ = &windows;
    n_kv_heads_ = n_kv_heads;
    head_dim_ = head_dim;
  }
  const char* name() const override { return "the compensation tokens"; }
  void lay_out(Arenas& arenas) override;
  void reset() override;
  void copy_from(const Part& other, uint32_t n_tokens) override;
  // Refuses where the sums hold tokens that are to go.
  Status can_cut(uint32_t n_tokens, bool lossy) const override;
  // Sums that hold any of the tokens that are gone begin anew.
  void cut(uint32_t n_tokens) override;
  // One stream's, which are saved with its table: a stream of which `front` pages stay and whose window begins at
  // position `window` now.
  Status stream_io(Io& io, uint32_t stream, uint32_t front, uint32_t window) const;

  bool is_on() const { return windows_ != nullptr && windows_->compensates; }
  bool has(uint32_t stream) const { return is_on() && windows_->has(stream); }
  LeftSum& of(uint32_t stream) const { return sums_[windows_->rank(stream)]; }
  // [2, head_dim] keys, and values after them.
  float* values(uint32_t stream) const { return values_ + size_t{windows_->rank(stream)} * n_values(); }
  uint32_t n_values() const { return 2 * head_dim_; }
  // Those of all streams that have them, in their order.
  uint32_t n_streams() const { return windows_->n_streams; }
  LeftSum* sums() const { return sums_; }
  float* all_values() const { return values_; }
  float* scratch() const { return scratch_; }  // of the same shape

  // Adds the `len` tokens of a page that leaves.
  void add_page(uint32_t stream, KvFormat format, const uint16_t* page, uint32_t first_pos, uint32_t len);

 private:
  const StreamWindows* windows_ = nullptr;
  uint32_t n_kv_heads_ = 0, head_dim_ = 0;
  LeftSum* sums_ = nullptr;   // [windows_->n_streams]
  float* values_ = nullptr;   // [windows_->n_streams, 2, head_dim]
  float* scratch_ = nullptr;  // [2, head_dim]
};

// Adds one token of a page to sums of keys and values.
void add_token(KvFormat format, const uint16_t* page, uint32_t token, uint32_t head_dim, float* sums);

}  // namespace weir
