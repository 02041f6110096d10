// RaaS with recall: pages leave by RaaS's stamps, stay within reach, and come back in the step that wants them. Prompts
// are treated like everything else and may have any length; for the policy that divides the budget, prompt pages and
// those of the answer have slots of their own. Time per step O(length / 16 + budget), device memory O(budget + length /
// 256), host memory O(length).
// Source: the stamps of Hu et al. (RaaS, arXiv:2502.11147) with the recall of Chen et al. (ArkVale, NeurIPS 2024);
// docs/algorithms.md, "Recall by other policies".
#include "policy/recall.h"
#include "policy/stamps.h"

namespace weir {
namespace {

// Options that mean nothing when pages come back. Ranks and estimates would count pages that the step does not attend.
Status refuse_options(OptionReader& options, const StampOptions& o, bool has_parts) {
  constexpr const char* kBecause = "recall=on";
  for (const char* name : {"pin_prompt", "overflow", "skip_layers"}) WEIR_TRY(options.contradicts(name, kBecause));
  if (!has_parts) WEIR_TRY(options.contradicts("min_decode_pages", kBecause));
  if (o.rule != static_cast<uint32_t>(StampRule::kAlpha))
    WEIR_TRY(options.contradicts(options.has("r") ? "r" : "stamp_rule", kBecause));
  return o.exact_mass != 0 ? Status() : options.contradicts("stamp_source", kBecause);
}

// The answer keeps slots for min_decode_pages, and for the protected pages, the open one and one that comes back.
Status split_slots(const char* name, const PolicyConfig& config, const StampOptions& o, float rho,
                   RecallOptions& recall) {
  const uint32_t n_slots = recall_slots(config);
  recall.prompt_slots = std::min(n_slots, std::max(1u, static_cast<uint32_t>(rho * static_cast<float>(n_slots))));
  const uint32_t least = std::max(o.pinned.min_decode_pages, recall.protect + 2), left = n_slots - recall.prompt_slots;
  if (left >= least || n_slots >= whole_pages(context_of(config))) return {};
  return fail(
      WEIR_ERR_BUDGET,
      "policy %s: a budget of %u tokens with rho=%g leaves %u decode pages, %u are needed; give more tokens or a "
      "smaller rho",
      name, n_slots * kPageTokens, static_cast<double>(rho), left, least);
}

}  // namespace

Status make_stamped_recall(const char* name, const PolicyConfig& config, OptionReader& options, StampOptions o,
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
  StepRules rules;
  set_stamps(rules, o, needs.recall_slots == 0);
  set_recall(rules, needs, recall);
  put_policy<PinnedPromptPolicy>(storage, out, name, needs, rules, config.attn_scale, o.pinned);
  return {};
}

}  // namespace weir
