// ArkVale: pages that leave the pool can come back. Each step estimates all pages by their digests, wanted is what
// scores best, and wanted pages that are cold return before the step attends, over those that were wanted the longest
// ago.
// Time per step O(length / 16 + budget), device memory O(budget + length / 256), host memory O(length).
// Paper: Chen et al., "ArkVale: Efficient Generative LLM Inference with Recallable Key-Value Eviction", NeurIPS 2024,
// sec. 4 and 5; docs/algorithms.md, "ArkVale".
// Differs from the paper: pages of 16 tokens; every (layer, KV head) stream decides for itself, by the best estimate of
// any head of the group; at most recall_pages return in a step; and no layer is left dense. docs/papers.md has the
// measurements.
#include <new>

#include "policy/recall.h"

namespace weir {
namespace {

class ArkValePolicy final : public Policy {
 public:
  ArkValePolicy(const PolicyNeeds& needs, const RecallOptions& o, float scale) : o_(o), attn_scale_(scale) {
    needs_ = needs;
  }
  Policy* copy_to(PolicyStorage& storage) const override { return new (storage.bytes) ArkValePolicy(*this); }

  Status admit_prompt(const KvCache&, uint32_t) const override { return {}; }  // checked against the context already
  uint32_t chunk_tokens(const KvCache& kv, uint32_t n_left, uint32_t batch_tokens) const override {
    return chunk_that_fits(kv, n_left, batch_tokens);
  }
  uint32_t victim(const StreamView& s, const RoomArgs& room) const override {
    return needs_.recall_slots == 0 ? kNone : recall_victim(s, room, o_);
  }
  bool can_take_back_prompt() const override { return true; }
  uint32_t min_unpinned() const override { return needs_.recall_slots != 0 ? weir::min_unpinned(o_) : 2; }
  uint32_t n_front_rows() const override { return o_.selection.sink_pages; }

  Status select(OpContext& cx, const OpTable& ops, KvCache& kv, const SelectArgs& a, PageLists& lists) const override {
    return needs_.page_lists ? select_with_recall(cx, ops, kv, a, o_, attn_scale_, lists) : Status();
  }

  StepRules step_rules() const override {
    StepRules rules;
    set_recall(rules, needs_, o_);
    return rules;
  }

 private:
  RecallOptions o_;
  float attn_scale_;
};

}  // namespace

Status make_arkvale(const PolicyConfig& config, PolicyStorage& storage, Policy*& out) {
  const uint32_t n_slots = recall_slots(config);
  RecallOptions o;
  o.protect = default_protect(n_slots);
  OptionReader options("arkvale", config.options);
  WEIR_TRY(read_recall(config, options, o));
  WEIR_TRY(options.finish());
  PolicyNeeds needs;
  WEIR_TRY(plan_recall("arkvale", config, o, needs));
  static_assert(sizeof(ArkValePolicy) <= sizeof(storage.bytes));
  out = new (storage.bytes) ArkValePolicy(needs, o, config.attn_scale);
  return {};
}

}  // namespace weir
