// LFPS: every page stays, and a step attends single tokens, found among those that mattered to the steps before, or
// whose distance did. Its memory is all keys and values, and two weights per token and query head. Time per step
// O(tokens attended): nothing looks at all keys or at whole tables.
// Paper: "Learn from the past for fast sparse attention" (LFPS), arXiv:2506.15704; docs/algorithms.md, "LFPS", which
// also says what of it had to be reconstructed.
// Differs from the paper: the candidates are the highest entries of a number by default, because the paper's rule for
// thresholds is not known; the heads of a group share candidates; means of keys and values count the answer, too.
#include <algorithm>
#include <iterator>

#include "ops/history_begin.h"
#include "ops/table.h"
#include "policy/policy.h"

namespace weir {
namespace {

// What a step costs by the number of tokens, between which it is interpolated; beyond, shares stay. Chosen by speed,
// and by what is found on real text (docs/results/lfps).
constexpr struct {
  uint32_t tokens;
  HistorySize size;
} kSizes[] = {{4096, {620, 82}}, {16384, {820, 200}}, {65536, {1400, 400}}, {131072, {1900, 655}}};

HistorySize size_for(uint32_t n) {
  constexpr auto& last = kSizes[std::size(kSizes) - 1];
  if (n <= kSizes[0].tokens) return kSizes[0].size;
  const auto between = [](uint32_t low, uint32_t high, double t) {
    return static_cast<uint32_t>(low + t * (static_cast<double>(high) - low));
  };
  if (n >= last.tokens) {
    const double times = static_cast<double>(n) / last.tokens;
    return {between(0, last.size.candidates, times), between(0, last.size.top, times)};
  }
  size_t i = 1;
  while (n > kSizes[i].tokens) ++i;
  const auto &low = kSizes[i - 1], &high = kSizes[i];
  const double t = static_cast<double>(n - low.tokens) / (high.tokens - low.tokens);
  return {between(low.size.candidates, high.size.candidates, t), between(low.size.top, high.size.top, t)};
}

struct LfpsOptions {
  HistoryRules rules;
  uint32_t top = 0;    // tokens that a head attends; 0: by their number
  uint32_t quota = 0;  // candidates; 0: by the number of tokens, but twice what is attended
};

// Both numbers rise with n.
HistorySize size_with(const LfpsOptions& o, uint32_t n) {
  HistorySize size = size_for(n);
  if (o.top != 0) size.top = o.top;
  if (o.quota != 0) size.top = std::min(size.top, o.quota);
  size.candidates = std::min(n, o.quota != 0 ? o.quota : std::max(size.candidates, 2 * size.top));
  if (n <= size.top) size.candidates = n;
  return size;
}

class LfpsPolicy final : public Policy {
 public:
  LfpsPolicy(const PolicyNeeds& needs, const LfpsOptions& o, float attn_scale)
      : Policy(needs, StepRules(), attn_scale), o_(o) {}
  Policy* copy_to(PolicyStorage& storage) const override { return new (storage.bytes) LfpsPolicy(*this); }

  // The last chunk has the rows that the tables begin with, or as many as fit in one.
  uint32_t chunk_tokens(const KvCache&, uint32_t n_left, uint32_t batch_tokens) const override {
    const uint32_t n = std::min(n_left, batch_tokens), rest = n_left - n;
    const uint32_t last = std::min(o_.rules.n_rows, batch_tokens);
    return rest == 0 || rest >= last ? n : n - (last - rest);
  }

  HistoryRules history_rules() const override { return o_.rules; }
  HistorySize history_size(uint32_t n) const override { return size_with(o_, n); }

  Status observe_prompt(OpContext& cx, const OpTable& ops, KvCache& kv, const ObservePromptArgs& a) const override {
    if (a.n_left != 0 || a.layer < needs_.history_from_layer) return {};
    const uint32_t end = a.pos + a.n_rows;
    return ops.history_begin(cx, {.q = a.q,
                                  .kv = kv.view(a.layer),
                                  .n_rows = a.n_rows,
                                  .n_heads = a.n_heads,
                                  .pos = a.pos,
                                  .scale = attn_scale_,
                                  .soft_cap = a.soft_cap,
                                  .history = kv.history(a.layer),
                                  .rules = o_.rules,
                                  .candidates = history_size(end - std::min(end, o_.rules.n_sink)).candidates});
  }

 private:
  LfpsOptions o_;
};

Status read_options(OptionReader& options, const PolicyConfig& config, uint32_t context, LfpsOptions& o,
                    uint32_t& skip_layers) {
  static constexpr const char* kModes[] = {"quota", "threshold"};
  uint32_t mode = 0;
  WEIR_TRY(options.get_u32("skip_layers", skip_layers, 0, config.n_layers));
  WEIR_TRY(options.get_u32("sinks", o.rules.n_sink, 0, 64));
  WEIR_TRY(options.get_u32("recent", o.rules.n_recent, 1, 64));
  WEIR_TRY(options.get_u32("rows", o.rules.n_rows, 1, 32));
  WEIR_TRY(options.get_f32("gamma", o.rules.gamma, 0.01f, 1.0f));
  WEIR_TRY(options.get_f32("eta", o.rules.eta, 0.0f, 1.0f));
  WEIR_TRY(options.get_f32("position_share", o.rules.position_share, 0.0f, 1.0f));
  WEIR_TRY(options.get_word("candidates", mode, kModes));
  WEIR_TRY(options.get_f32("lambda", o.rules.lambda, -100.0f, 100.0f));
  WEIR_TRY(options.get_u32("quota", o.quota, 0, 1u << 30));
  WEIR_TRY(options.finish());
  o.rules.by_threshold = mode == 1;
  if (!o.rules.by_threshold) WEIR_TRY(options.contradicts("lambda", "candidates=quota"));
  if (o.quota > context) {
    return fail(WEIR_ERR_INVALID_ARG, "policy lfps: option quota=%u is more than the context, %u tokens", o.quota,
                context);
  }
  o.top = config.budget_tokens;
  if (o.quota == 0 || o.quota >= o.top) return {};
  return fail(WEIR_ERR_INVALID_ARG, "policy lfps: option quota=%u is below the budget, %u tokens", o.quota, o.top);
}

}  // namespace

Status make_lfps(const PolicyConfig& config, PolicyStorage& storage, Policy*& out) {
  LfpsOptions o;
  PolicyNeeds needs;
  needs.context_tokens = context_of(config);
  needs.pages_per_stream = whole_pages(needs.context_tokens);
  OptionReader options("lfps", config.options);
  WEIR_TRY(read_options(options, config, needs.context_tokens, o, needs.history_from_layer));
  needs.prompt_rows = o.rules.n_rows;
  needs.history.group = config.n_heads / config.n_kv_heads;
  needs.history.n_sink = o.rules.n_sink;
  needs.history.tokens = needs.context_tokens;
  const HistorySize most = size_with(o, needs.context_tokens);
  needs.history.list_room = static_cast<uint32_t>(list_room(o.rules, most, needs.context_tokens));
  put_policy<LfpsPolicy>(storage, out, needs, o, config.attn_scale);
  return {};
}

}  // namespace weir
