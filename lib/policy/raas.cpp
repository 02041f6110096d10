// RaaS: every page has a stamp, the last step in which it mattered; when a stream is full, the page with the oldest
// stamp leaves. Prompt pages are pinned. Steps attend all resident pages and select nothing. Time per step and memory
// O(budget).
// Paper: Hu et al., "RaaS: Reasoning-Aware Attention Sparsity for Efficient LLM Reasoning", arXiv:2502.11147 (v1),
// sec. 3; docs/algorithms.md, "RaaS".
// Differs from the paper: by default stamps come from exact page masses and a high threshold, not from digests and a
// low one (docs/papers.md has the measurements); the newest pages are protected; of equal stamps the lower last weight
// leaves; top_r ranks only the pages that can leave; every (layer, KV head) stream decides for itself; and there are
// rules for prompts that are too long to be pinned (pinned_prompt.h).
// decide=gap lets the page leave whose last hit and longest gap between hits are over first, as the recurrence of Zhang
// et al., "LazyEviction: Lagged KV Eviction with Attention Pattern Observation for Efficient Long Reasoning",
// arXiv:2506.15969 (docs/algorithms.md, "RaaS").
#include "policy/recall.h"
#include "policy/stamps.h"

namespace weir {

Status make_raas(const PolicyConfig& config, PolicyStorage& storage, Policy*& out) {
  StampOptions o;
  OptionReader options("raas", config.options);
  WEIR_TRY(read_stamps(options, o));
  bool recall = false;
  WEIR_TRY(options.get_bool("recall", recall));
  static constexpr const char* kDeciders[] = {"stamp", "gap"};
  if (recall) WEIR_TRY(options.contradicts("decide", "recall=on"));
  WEIR_TRY(options.get_later_word("decide", o.by_gap, kDeciders, 0));
  if (recall) return make_stamped_recall("raas", config, options, o, nullptr, storage, out);
  WEIR_TRY(refuse_recall_options(options));
  WEIR_TRY(read_digest(options, o.digest, o.spread));
  if (o.exact_mass != 0) WEIR_TRY(options.contradicts("digest", "stamp_source=exact_mass"));
  WEIR_TRY(read_pinned_prompt(options, true, o.pinned));
  if (o.pinned.overflow == PromptOverflow::kHybrid) {
    if (config.max_prompt_tokens == 0) {
      return fail(WEIR_ERR_INVALID_ARG,
                  "overflow=hybrid keeps prompts beyond the budget; max_prompt_tokens must say how long they may be");
    }
    return make_prompt_split("raas", config, options, o, true, storage, out);
  }
  WEIR_TRY(options.finish());
  PolicyNeeds needs;
  WEIR_TRY(plan_pinned_prompt("raas", config, o.pinned, needs));
  const bool holds_all = uint64_t{needs.pages_per_stream} * kPageTokens >= needs.context_tokens;
  StepRules rules;
  set_stamps(rules, o, holds_all);
  put_policy<PinnedPromptPolicy>(storage, out, "raas", needs, rules, config.attn_scale, o.pinned);
  return {};
}

}  // namespace weir
