// The class of the SnapKV prompt policy (snapkv.cpp has the method), and what other prompt policies make it from that
// choose pages as it does, with budgets of their own.
#pragma once

#include <new>

#include "policy/options.h"
#include "policy/policy.h"
#include "policy/prompts.h"

namespace weir {

struct SnapKvOptions {
  uint32_t pages = 0;    // prompt pages of a stream that stay
  uint32_t window = 64;  // last queries that score pages, whose tokens stay; 64 as in kvpress and KVCache-Factory
  uint32_t kernel = 5;   // tokens over which a weight is averaged
  // Budgets by layer: `pages` is their mean, and the layers that share it begin with n_wide_layers and are not local.
  LayerPages by_layer = {};
  uint32_t n_kv_heads = 1, global_every = 0, n_wide_layers = 0;
  // `pages` is the mean of a layer's heads, and each keeps at least min_pages.
  bool shares = false;
  uint32_t min_pages = 0;
};

class SnapKvPolicy final : public Policy {
 public:
  SnapKvPolicy(Policy& next, const PolicyNeeds& needs, const SnapKvOptions& o, float attn_scale)
      : Policy(needs, next.step_rules(), attn_scale), next_(next), o_(o) {}
  ~SnapKvPolicy() override { next_.~Policy(); }
  SnapKvPolicy(const SnapKvPolicy&) = delete;
  SnapKvPolicy& operator=(const SnapKvPolicy&) = delete;
  Policy* copy_to(PolicyStorage& storage) const override;

  Status admit_prompt(const KvCache& kv, uint32_t n_tok) const override;
  bool can_take_back_prompt() const override { return next_.can_take_back_prompt(); }
  Status admit_pin(const KvCache& kv, uint32_t first, uint32_t end) const override {
    return next_.admit_pin(kv, first, end);
  }
  // Prompt pages are pinned at the end of the prompt, when it is known which ones stay.
  uint32_t prompt_flags() const override { return next_.prompt_flags() & ~kPagePinned; }

  uint32_t chunk_tokens(const KvCache& kv, uint32_t n_left, uint32_t batch_tokens) const override;
  uint32_t victim(const StreamView& s, const RoomArgs& room) const override;
  Status observe_prompt(OpContext& cx, const OpTable& ops, KvCache& kv, const ObservePromptArgs& a) const override;
  void prompt_end(KvCache& kv, uint32_t first) const override;

  // With `shares`, when the pages of a layer have scores and the prompt ends before position `end`: those that shall
  // leave get a negative sign.
  void share_among_heads(const KvCache& kv, uint32_t layer, uint32_t end) const;

 private:
  uint32_t window_pages() const { return whole_pages(o_.window); }
  // First row that holds tokens of the window, which ends before position `end`. If the window touches more pages than
  // may stay, its oldest page does not count as part of it.
  uint32_t window_row(const StreamView& s, uint32_t end, uint32_t pages) const {
    uint32_t row = s.n_pages;
    while (row > 0 && uint64_t{s.first_pos[row - 1]} + s.len[row - 1] + o_.window > end && s.n_pages - row < pages)
      --row;
    return row;
  }
  static uint32_t prompt_pages(const StreamView& s);
  // Number of prompt pages of a stream that stay. Answer pages that the application pinned reduce it where the table is
  // too small for both.
  uint32_t limit(const StreamView& s, uint32_t stream) const;
  // Most prompt pages of a stream that its table has room for.
  uint32_t max_pages(const StreamView& s) const;
  // Flags of the pages that may not leave: those of the application, and of the first prompt unless it has more than
  // half of the room for prompts, or leaves none for the window. Its pages compete then.
  uint32_t staying(const StreamView& s, uint32_t stream) const;
  // Whether a prompt page of the stream may leave for another one.
  bool may_leave(const StreamView& s, uint32_t row, uint32_t window, uint32_t staying) const {
    return row >= n_front_rows() && row < window && (s.flags[row] & staying) == 0 && (s.flags[row] & kPagePrompt) != 0;
  }
  // The best page of a stream that shall leave so far; kNone: there is none, or it has all that it may.
  uint32_t best_leaving(const StreamView& s, uint32_t window, uint32_t staying) const;
  // Prompt pages of a stream that stay, at most.
  uint32_t pages_of(uint32_t stream) const;
  void score_stream(const StreamView& s, const float* mass, uint32_t window_begin, float rows) const;

  Policy& next_;
  SnapKvOptions o_;
};

// Reads the options that all of these prompt policies have, and checks them; `options` has read all others. `needs`:
// those of `next` and of this.
Status read_snapkv(const char* name, const PolicyConfig& config, const Policy& next, OptionReader& options,
                   SnapKvOptions& o, PolicyNeeds& needs);
Policy* put_snapkv(const PolicyConfig& config, PolicyStorage& storage, Policy& next, const PolicyNeeds& needs,
                   const SnapKvOptions& o);

}  // namespace weir
