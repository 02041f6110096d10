// RaaS with recall: pages leave by RaaS's stamps, stay within reach, and come back in the step that wants them. Prompts
// are treated like everything else and may have any length; for the policy that divides the budget, prompt pages and
// those of the answer have slots of their own. Time per step O(length / 16 + budget), device memory O(budget + length /
// 256), host memory O(length).
// Source: the stamps of Hu et al. (RaaS, arXiv:2502.11147) with the recall of Chen et al. (ArkVale, NeurIPS 2024);
// docs/algorithms.md, "Recall by other policies".
#include <new>

#include "policy/raas.h"
#include "policy/recall.h"

namespace weir {
namespace {

class RaasRecallPolicy final : public RaasPolicy {
 public:
  RaasRecallPolicy(const char* name, const PolicyNeeds& needs, const RaasOptions& raas, const RecallOptions& o,
                   float scale)
      : RaasPolicy(name, needs, raas, scale), recall_(o) {}
  Policy* copy_to(PolicyStorage& storage) const override { return new (storage.bytes) RaasRecallPolicy(*this); }

  uint32_t victim(const StreamView& s, const RoomArgs& room) const override {
    return holds_all() ? kNone : recall_victim(s, room, recall_);
  }
  bool can_take_back_prompt() const override { return true; }
  uint32_t min_unpinned() const override { return holds_all() ? 2 : weir::min_unpinned(recall_); }
  uint32_t n_front_rows() const override { return recall_.selection.sink_pages; }

  Status select(OpContext& cx, const OpTable& ops, KvCache& kv, const SelectArgs& a, PageLists& lists) const override {
    return needs_.page_lists ? select_with_recall(cx, ops, kv, a, recall_, attn_scale_, lists) : Status();
  }

  StepRules step_rules() const override {
    StepRules rules = RaasPolicy::step_rules();
    set_recall(rules, needs_, recall_);
    return rules;
  }

 private:
  bool holds_all() const override { return needs_.recall_slots == 0; }

  RecallOptions recall_;
};

// Options that mean nothing when pages come back. Ranks and estimates would count pages that the step does not attend.
Status refuse_options(OptionReader& options, const RaasOptions& o, bool has_parts) {
  constexpr const char* kBecause = "recall=on";
  for (const char* name : {"pin_prompt", "overflow", "skip_layers"}) WEIR_TRY(options.contradicts(name, kBecause));
  if (!has_parts) WEIR_TRY(options.contradicts("min_decode_pages", kBecause));
  if (o.rule != static_cast<uint32_t>(StampRule::kAlpha))
    WEIR_TRY(options.contradicts(options.has("r") ? "r" : "stamp_rule", kBecause));
  return o.exact_mass != 0 ? Status() : options.contradicts("stamp_source", kBecause);
}

// The answer keeps slots for min_decode_pages, and for the protected pages, the open one and one that comes back.
Status split_slots(const char* name, const PolicyConfig& config, const RaasOptions& o, float rho,
                   RecallOptions& recall) {
  const uint32_t n_slots = recall_slots(config);
  recall.prompt_slots = std::min(n_slots, std::max(1u, static_cast<uint32_t>(rho * static_cast<float>(n_slots))));
  const uint32_t least = std::max(o.pinned.min_decode_pages, recall.protect + 2), left = n_slots - recall.prompt_slots;
  const uint32_t context = config.context_tokens != 0 ? config.context_tokens : config.trained_tokens;
  if (left >= least || n_slots >= whole_pages(context)) return {};
  return fail(
      WEIR_ERR_BUDGET,
      "policy %s: a budget of %u tokens with rho=%g leaves %u decode pages, %u are needed; give more tokens or a "
      "smaller rho",
      name, n_slots * kPageTokens, static_cast<double>(rho), left, least);
}

}  // namespace

Status make_raas_with_recall(const char* name, const PolicyConfig& config, OptionReader& options, RaasOptions o,
                             const float* rho, PolicyStorage& storage, Policy*& out) {
  if (!options.has("stamp_source")) o.exact_mass = 1;  // here a digest is for the selection
  WEIR_TRY(refuse_options(options, o, rho != nullptr));
  const uint32_t n_slots = recall_slots(config);
  RecallOptions recall;
  recall.stamp = RecallStamp::kObserved;
  recall.protect = options.has("protect_share") ? static_cast<uint32_t>(o.protect.share * static_cast<float>(n_slots))
                                                : default_protect(n_slots);
  WEIR_TRY(read_recall(config, options, recall));
  WEIR_TRY(options.finish());
  if (rho != nullptr) WEIR_TRY(split_slots(name, config, o, *rho, recall));
  o.pinned.pin_prompt = false;
  PolicyNeeds needs;
  WEIR_TRY(plan_recall(name, config, recall, needs));
  needs.page_mass = needs.recall_slots != 0;
  static_assert(sizeof(RaasRecallPolicy) <= sizeof(storage.bytes));
  out = new (storage.bytes) RaasRecallPolicy(name, needs, o, recall, config.attn_scale);
  return {};
}

}  // namespace weir
