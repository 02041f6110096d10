// TOVA: when room is needed, the page to which the latest query gives the least attention leaves for good. Time per
// step and memory O(budget), but for the first skip_layers layers, which are dense.
// Paper: Oren et al., "Transformers are Multi-State RNNs", arXiv:2401.06104, sec. 4; docs/algorithms.md, "TOVA".
// Differs from the paper: pages instead of tokens, by their mean weight (tests/policy/token_reference.h has the token
// form); the open page stays; a prompt longer than the budget is read in chunks with evictions between them; with
// scope=stream every (layer, KV head) stream decides for itself. In the paper every query evicts one token once the
// cache is full; here a page must leave once in 16 tokens. decide=page asks only the latest query. With decide=token
// every query of a full stream marks the page with the least mean weight, and the page with the most marks leaves.
#include <algorithm>

#include "ops/page_accumulate.h"
#include "policy/options.h"
#include "policy/policy.h"

namespace weir {
namespace {

struct TovaOptions {
  uint32_t stream = 0;       // 0: all streams of a layer drop the same pages, as in the paper
  uint32_t skip_layers = 2;  // dense layers, as in the Quest paper's comparison
  uint32_t marks = 0;        // 1: decide=token
};

class TovaPolicy final : public Policy {
 public:
  TovaPolicy(const PolicyNeeds& needs, const StepRules& rules, float attn_scale) : Policy(needs, rules, attn_scale) {}
  Policy* copy_to(PolicyStorage& storage) const override { return new (storage.bytes) TovaPolicy(*this); }

  // Scores pages by the last query of the chunk (prompt_rows is 1).
  Status observe_prompt(OpContext& cx, const OpTable& ops, KvCache& kv, const ObservePromptArgs& a) const override {
    if (a.layer < rules_.observe_from_layer) return {};
    const KvView view = kv.view(a.layer);
    WEIR_TRY(find_token_mass(cx, ops, kv, a));
    float* score = kv.last_scores(a.layer);
    for (uint32_t kv_head = 0; kv_head < view.n_kv_heads; ++kv_head) {
      for (uint32_t row = 0; row < view.n_pages[kv_head]; ++row) {
        const bool of_layer = rules_.accumulate == AccumulateRule::kLatestLayer;
        const uint32_t first = of_layer ? 0 : kv_head, end = of_layer ? view.n_kv_heads : kv_head + 1;
        score[size_t{kv_head} * view.capacity + row] =
            mean_mass(view, a.token_mass, first, end, row, a.n_heads / view.n_kv_heads);
      }
    }
    return {};
  }

  // Pages begin without marks, which are counted in the stamp from first_pos + 1 on.
  void prompt_end(KvCache& kv, uint32_t first) const override {
    if (!rules_.marks) return;
    for (uint32_t i = 0; i < kv.shape().n_streams(); ++i) {
      const StreamView s = kv.stream(i);
      for (uint32_t row = 0; row < s.n_pages; ++row) {
        if (s.first_pos[row] >= first) s.stamp[row] = s.first_pos[row] + 1;
      }
    }
  }

 private:
  // Mean weight of a page's tokens over the query heads of the KV heads [first, end).
  static float mean_mass(const KvView& view, const float* token_mass, uint32_t first, uint32_t end, uint32_t row,
                         uint32_t group) {
    float sum = 0.0f;
    const uint32_t len = view.len[size_t{first} * view.capacity + row];
    for (uint32_t kv_head = first; kv_head < end; ++kv_head) {
      for (uint32_t j = 0; j < len; ++j) sum += token_mass[(size_t{kv_head} * view.capacity + row) * kPageTokens + j];
    }
    return sum / static_cast<float>((end - first) * group * len);
  }
};

}  // namespace

Status make_tova(const PolicyConfig& config, PolicyStorage& storage, Policy*& out) {
  TovaOptions o;
  static constexpr const char* kScopes[] = {"layer", "stream"};
  static constexpr const char* kDecide[] = {"page", "token"};
  OptionReader options("tova", config.options);
  if (o.skip_layers >= config.n_layers) o.skip_layers = 0;
  // Prompt policies evict pages per KV head, and head policies rule heads; one decision for a whole layer needs the
  // same pages in all its streams.
  const bool differ = options.has(kPromptOption) || options.has(kHeadsOption);
  if (differ && config.n_kv_heads > 1) o.stream = 1;
  WEIR_TRY(options.get_word("scope", o.stream, kScopes));
  for (const char* other : {kPromptOption, kHeadsOption}) {
    if (o.stream == 0 && config.n_kv_heads > 1) WEIR_TRY(options.contradicts(other, "scope=layer"));
  }
  WEIR_TRY(options.get_word("decide", o.marks, kDecide));
  WEIR_TRY(options.get_u32("skip_layers", o.skip_layers, 0, config.n_layers - 1));
  WEIR_TRY(options.finish());
  PolicyNeeds needs;
  needs.context_tokens = context_of(config);
  needs.pages_per_stream = budget_pages(config, needs.context_tokens);
  needs.n_wide_layers = o.skip_layers;
  needs.wide_pages = whole_pages(needs.context_tokens);
  const bool holds_all = uint64_t{needs.pages_per_stream} * kPageTokens >= needs.context_tokens;
  needs.prompt_rows = holds_all ? 0 : 1;
  StepRules rules;
  rules.victim = o.marks != 0 ? VictimRule::kMarked : VictimRule::kLightest;  // without a recent window
  rules.marks = o.marks != 0;
  rules.observe = holds_all ? StepRules::Observe::kNone : StepRules::Observe::kAccumulate;
  rules.observe_from_layer = o.skip_layers;
  rules.accumulate = o.stream != 0 ? AccumulateRule::kLatestGroup : AccumulateRule::kLatestLayer;
  put_policy<TovaPolicy>(storage, out, needs, rules, config.attn_scale);
  return {};
}

}  // namespace weir
