// H2O: the pages with the largest attention mass, summed over all steps, stay, and so does a recent window. The other
// pages leave for good. Time per step and memory O(budget), but for the first skip_layers layers, which are dense.
// Paper: Zhang et al., "H2O: Heavy-Hitter Oracle for Efficient Generative Inference", arXiv:2306.14048, sec. 4;
// docs/algorithms.md, "H2O".
// Differs from the paper: pages instead of tokens (tests/policy/token_reference.h has the token form); the query heads
// of a group share one sum; budgets are numbers of tokens, not shares of the prompt; and a prompt longer than the
// budget is read in chunks with evictions between them, so that the budget holds at every moment. The paper sums
// without dividing and over the whole prompt: score=norm_sum, init=window and init=zero are additions.
#include <algorithm>

#include "ops/page_accumulate.h"
#include "ops/table.h"
#include "ops/token_mass.h"
#include "policy/options.h"
#include "policy/policy.h"

namespace weir {
namespace {

// What a prompt puts into the sums.
enum Init : uint32_t { kExact, kWindow, kZero };

struct H2oOptions {
  uint32_t recent = 0;       // tokens of the recent window; default: half of the budget
  uint32_t normalise = 0;    // 1: a page's sum is divided by the number of steps that it holds
  uint32_t init = kExact;    // the sums over all queries of the prompt, as in the paper
  uint32_t init_rows = 8;    // kWindow: so many last prompt queries count; 8 as in OpenVINO GenAI
  uint32_t skip_layers = 2;  // dense layers, as in the Quest paper's comparison
};

class H2oPolicy final : public Policy {
 public:
  H2oPolicy(const PolicyNeeds& needs, const StepRules& rules, float attn_scale, uint32_t init)
      : Policy(needs, rules, attn_scale), init_(init) {}
  Policy* copy_to(PolicyStorage& storage) const override { return new (storage.bytes) H2oPolicy(*this); }

  // A chunk for which pages must leave opens no more pages than the table has outside the recent window.
  uint32_t chunk_tokens(const KvCache& kv, uint32_t n_left, uint32_t batch_tokens) const override {
    const uint32_t fits = chunk_that_fits(kv, n_left, batch_tokens), capacity = kv.shape().pages_per_stream;
    if (bounded_stream(kv).n_pages + kv.pages_to_open(fits) <= capacity) return fits;
    const uint32_t window = whole_pages(rules_.recent_tokens) + 1;  // most pages that it can touch
    const uint32_t pages = capacity > window ? capacity - window : 1;
    return std::min(fits, pages * kPageTokens - kv.n_tokens() % kPageTokens);
  }
  Status observe_prompt(OpContext& cx, const OpTable& ops, KvCache& kv, const ObservePromptArgs& a) const override {
    if (a.layer < rules_.observe_from_layer) return {};
    const KvView view = kv.view(a.layer);
    WEIR_TRY(ops.token_mass(cx, {.mass = a.token_mass,
                                 .q = a.q,
                                 .lse = a.lse,
                                 .kv = view,
                                 .n_rows = a.n_rows,
                                 .n_heads = a.n_heads,
                                 .pos = a.pos,
                                 .scale = attn_scale_,
                                 .window = a.window,
                                 .soft_cap = a.soft_cap}));
    float* score = kv.last_scores(a.layer);
    for (uint32_t kv_head = 0; kv_head < view.n_kv_heads; ++kv_head) {
      for (uint32_t row = 0; row < view.n_pages[kv_head]; ++row) {
        const size_t at = size_t{kv_head} * view.capacity + row;
        float sum = init_ == kExact ? score[at] : 0.0f;
        for (uint32_t j = 0; j < view.len[at]; ++j) sum += a.token_mass[at * kPageTokens + j];
        score[at] = sum;
        kv.stamps(a.layer)[at] = (init_ == kExact ? view.first_pos[at] : a.pos) + 1;
      }
    }
    return {};
  }

  // A page's stamp is the first step whose attention its score holds; score=norm_sum divides by the steps since then.
  // With init=zero a prompt is not observed: the pages that it opened begin with the step after it, and the stamps of
  // older pages move forward by its length.
  void prompt_end(KvCache& kv, uint32_t first) const override {
    for (uint32_t i = 0; init_ == kZero && i < kv.shape().n_streams(); ++i) {
      const StreamView s = kv.stream(i);
      for (uint32_t row = 0; row < s.n_pages; ++row) {
        s.stamp[row] = s.first_pos[row] >= first ? kv.n_tokens() + 1 : s.stamp[row] + (kv.n_tokens() - first);
      }
    }
  }

 private:
  uint32_t init_;
};

Status read_options(const PolicyConfig& config, H2oOptions& o) {
  static constexpr const char* kScores[] = {"sum", "norm_sum"};
  static constexpr const char* kInits[] = {"exact", "window", "zero"};
  OptionReader options("h2o", config.options);
  o.recent = config.budget_tokens / 2;
  if (o.skip_layers >= config.n_layers) o.skip_layers = 0;
  WEIR_TRY(options.get_u32("recent", o.recent, 0, 1u << 30));
  WEIR_TRY(options.get_word("score", o.normalise, kScores));
  WEIR_TRY(options.get_word("init", o.init, kInits));
  WEIR_TRY(options.get_u32("init_rows", o.init_rows, 1, 4096));
  if (o.init != kWindow) WEIR_TRY(options.contradicts("init_rows", "any init but window"));
  WEIR_TRY(options.get_u32("skip_layers", o.skip_layers, 0, config.n_layers - 1));
  return options.finish();
}

}  // namespace

Status make_h2o(const PolicyConfig& config, PolicyStorage& storage, Policy*& out) {
  H2oOptions o;
  WEIR_TRY(read_options(config, o));
  PolicyNeeds needs;
  needs.context_tokens = context_of(config);
  needs.pages_per_stream = budget_pages(config, needs.context_tokens);
  needs.n_wide_layers = o.skip_layers;
  needs.wide_pages = whole_pages(needs.context_tokens);
  const bool holds_all = uint64_t{needs.pages_per_stream} * kPageTokens >= needs.context_tokens;
  if (!holds_all && uint64_t{o.recent} + 2 * kPageTokens > uint64_t{needs.pages_per_stream} * kPageTokens) {
    return fail(WEIR_ERR_BUDGET, "policy h2o with recent=%u needs a budget of at least %u tokens, not %u", o.recent,
                (whole_pages(o.recent) + 2) * kPageTokens, config.budget_tokens);
  }
  needs.prompt_rows = holds_all || o.init == kZero ? 0 : o.init == kWindow ? o.init_rows : PolicyNeeds::kAllRows;
  StepRules rules;
  rules.victim = VictimRule::kLightest;
  rules.recent_tokens = o.recent;
  rules.per_step = o.normalise != 0;
  rules.observe = holds_all ? StepRules::Observe::kNone : StepRules::Observe::kAccumulate;
  rules.observe_from_layer = o.skip_layers;
  rules.accumulate = AccumulateRule::kSum;
  put_policy<H2oPolicy>(storage, out, needs, rules, config.attn_scale, o.init);
  return {};
}

}  // namespace weir
