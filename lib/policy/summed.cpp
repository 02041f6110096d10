// Policies that sum up attention; see summed.h.
#include "policy/summed.h"

#include <algorithm>

namespace weir {

// A chunk for which pages must leave opens no more pages than the table has outside the recent window.
uint32_t SummedPolicy::chunk_tokens(const KvCache& kv, uint32_t n_left, uint32_t batch_tokens) const {
  const uint32_t fits = chunk_that_fits(kv, n_left, batch_tokens), capacity = kv.shape().pages_per_stream;
  if (bounded_stream(kv).n_pages + kv.pages_to_open(fits) <= capacity) return fits;
  const uint32_t window = whole_pages(rules_.recent_tokens) + 1;  // most pages that it can touch
  const uint32_t pages = capacity > window ? capacity - window : 1;
  return std::min(fits, pages * kPageTokens - kv.n_tokens() % kPageTokens);
}

Status SummedPolicy::observe_prompt(OpContext& cx, const OpTable& ops, KvCache& kv, const ObservePromptArgs& a) const {
  if (a.layer < rules_.observe_from_layer) return {};
  const KvView view = kv.view(a.layer);
  WEIR_TRY(find_token_mass(cx, ops, kv, a));
  float* score = kv.last_scores(a.layer);
  const bool adds = prompt_ == PromptSums::kExact;
  const auto rows = static_cast<float>(a.n_rows), heads = static_cast<float>(a.n_heads / view.n_kv_heads);
  for (uint32_t kv_head = 0; kv_head < view.n_kv_heads; ++kv_head) {
    for (uint32_t row = 0; row < view.n_pages[kv_head]; ++row) {
      const size_t at = size_t{kv_head} * view.capacity + row;
      float sum = adds ? score[at] : 0.0f;
      for (uint32_t j = 0; j < view.len[at]; ++j) sum += a.token_mass[at * kPageTokens + j];
      if (prompt_ == PromptSums::kHits) {
        const float even = static_cast<float>(view.len[at]) / static_cast<float>(a.pos + a.n_rows);
        sum = rows * std::min(1.0f, sum / (rows * heads) / even);
      }
      score[at] = sum;
      kv.stamps(a.layer)[at] = (adds ? view.first_pos[at] : a.pos) + 1;
    }
  }
  return {};
}

// A page's stamp is the first step whose attention its score holds, for rules that divide by the steps since then.
// Where a prompt is not observed, the pages that it opened begin with the step after it, and the stamps of older pages
// move forward by its length.
void SummedPolicy::prompt_end(KvCache& kv, uint32_t first) const {
  for (uint32_t i = 0; prompt_ == PromptSums::kZero && i < kv.shape().n_streams(); ++i) {
    const StreamView s = kv.stream(i);
    for (uint32_t row = 0; row < s.n_pages; ++row)
      s.stamp[row] = s.first_pos[row] >= first ? kv.n_tokens() + 1 : s.stamp[row] + (kv.n_tokens() - first);
  }
}

Status read_summed(const PolicyConfig& config, OptionReader& options, SummedOptions& o) {
  if (o.skip_layers >= config.n_layers) o.skip_layers = 0;
  WEIR_TRY(options.get_u32("recent", o.recent, 0, 1u << 30));
  return options.get_u32("skip_layers", o.skip_layers, 0, config.n_layers - 1);
}

Status make_summed(const char* policy, const PolicyConfig& config, const SummedOptions& o, StepRules rules,
                   PolicyStorage& storage, Policy*& out) {
  PolicyNeeds needs;
  needs.context_tokens = context_of(config);
  needs.pages_per_stream = budget_pages(config, needs.context_tokens);
  needs.n_wide_layers = o.skip_layers;
  needs.wide_pages = whole_pages(needs.context_tokens);
  const bool holds_all = uint64_t{needs.pages_per_stream} * kPageTokens >= needs.context_tokens;
  if (!holds_all && uint64_t{o.recent} + 2 * kPageTokens > uint64_t{needs.pages_per_stream} * kPageTokens) {
    return fail(WEIR_ERR_BUDGET, "policy %s with recent=%u needs a budget of at least %u tokens, not %u", policy,
                o.recent, (whole_pages(o.recent) + 2) * kPageTokens, config.budget_tokens);
  }
  if (!holds_all && o.prompt != PromptSums::kZero)
    needs.prompt_rows = o.prompt == PromptSums::kExact ? PolicyNeeds::kAllRows : o.rows;
  rules.victim = VictimRule::kLightest;
  rules.recent_tokens = o.recent;
  rules.observe = holds_all ? ObserveRule::kNone : ObserveRule::kAccumulate;
  rules.observe_from_layer = o.skip_layers;
  put_policy<SummedPolicy>(storage, out, needs, rules, config.attn_scale, o.prompt);
  return {};
}

}  // namespace weir
