// StreamingLLM: the first tokens (attention sinks) and a recent window stay, the tokens between them leave. Constant
// memory for endless text.
// Paper: Xiao et al., "Efficient Streaming Language Models with Attention Sinks", arXiv:2309.17453, sec. 3;
// docs/algorithms.md, "StreamingLLM".
// Differs from the paper: whole pages of 16 tokens are kept, so up to 15 tokens more than asked for are visible on
// either side (exact_mask hides them); and positions in the cache come from a second rotation of the query, for the
// sink pages, not from rotating the keys again (docs/algorithms.md, "Positions when pages leave").
#include <algorithm>

#include "policy/options.h"
#include "policy/policy.h"

namespace weir {
namespace {

// The limit of a conversation with positions in the cache, which the trained length does not limit. 32-bit positions
// have room for more, so they do not overflow.
constexpr uint32_t kEndlessTokens = 1u << 30;

struct SinkOptions {
  uint32_t n_sink = 4;  // as in the paper: one token is not enough, more than four gain nothing
  uint32_t window = 0;  // 0: all that the budget holds
  bool in_cache = true;
  bool exact_mask = false;
};

class SinkPolicy final : public Policy {
 public:
  SinkPolicy(const PolicyNeeds& needs, const StepRules& rules, float attn_scale) : Policy(needs, rules, attn_scale) {}
  Policy* copy_to(PolicyStorage& storage) const override { return new (storage.bytes) SinkPolicy(*this); }
  bool can_take_back_prompt() const override { return false; }  // its middle leaves

  // Pages that the chunk's first rows must see may not leave for the chunk: with a mask these are the whole window;
  // without one the chunk may open a quarter of the window's pages, at least one.
  uint32_t chunk_tokens(const KvCache& kv, uint32_t n_left, uint32_t batch_tokens) const override {
    const uint32_t want = std::min(n_left, batch_tokens);
    const uint32_t cap = kv.shape().pages_per_stream;
    const uint32_t in_page = kv.n_tokens() % kPageTokens;
    const StreamView s = bounded_stream(kv);
    if (s.n_pages + kv.pages_to_open(want) <= cap) return want;
    const uint32_t window_pages = cap - rules_.front_rows;
    const uint32_t kept = rules_.scope.window != 0 ? (rules_.scope.window - 1 + kPageTokens - 1) / kPageTokens
                                                   : window_pages - std::max(1u, window_pages / 4);
    const uint32_t pages = std::max(1u, window_pages > kept ? window_pages - kept : 1u);
    return std::min(want, pages * kPageTokens - in_page);
  }

  // With positions in the cache there are two shifts, one for the sinks and one for the window; a pinned page between
  // them would need a third.
  Status admit_pin(const KvCache& kv, uint32_t first, uint32_t end) const override {
    if (rules_.in_cache_pos)
      return fail(WEIR_ERR_UNSUPPORTED, "policy sink cannot pin with positions=incache; positions=abs can");
    return Policy::admit_pin(kv, first, end);
  }
};

// The query's position in the cache is the number of tokens before it that are resident, with a mask: visible.
StepRules rules_of(const SinkOptions& o) {
  StepRules rules;
  rules.victim = VictimRule::kWindow;
  rules.front_rows = whole_pages(o.n_sink);
  rules.window_tokens = o.window;
  rules.in_cache_pos = o.in_cache;
  // With no sinks and a window of one token this is 0, which means another rule. That does no harm: without sinks no
  // row uses the position.
  rules.in_cache_limit = o.exact_mask ? o.n_sink + o.window - 1 : 0;
  rules.scope.n_sink_pages = o.in_cache ? rules.front_rows : 0;
  if (o.exact_mask) {
    rules.scope.n_sink = o.n_sink;
    rules.scope.window = o.window;
  }
  return rules;
}

}  // namespace

Status make_sink(const PolicyConfig& config, PolicyStorage& storage, Policy*& out) {
  SinkOptions o;
  OptionReader options("sink", config.options);
  static constexpr const char* kPositions[] = {"abs", "incache"};
  uint32_t mode = 1;
  WEIR_TRY(options.get_u32("sinks", o.n_sink, 0, 1u << 20));
  WEIR_TRY(options.get_u32("window", o.window, 1, 1u << 30));
  WEIR_TRY(options.get_word("positions", mode, kPositions));
  WEIR_TRY(options.get_bool("exact_mask", o.exact_mask));
  WEIR_TRY(options.finish());
  o.in_cache = mode == 1;

  PolicyNeeds needs;
  const uint32_t sink_pages = whole_pages(o.n_sink);
  const bool endless = o.in_cache && config.context_tokens == 0 && config.budget_tokens != 0;
  needs.context_tokens = config.context_tokens != 0 ? config.context_tokens
                         : endless                  ? kEndlessTokens
                                                    : config.trained_tokens;
  // Positions in the cache are those that the model was trained for.
  needs.pages_per_stream = endless ? std::min(budget_pages(config, needs.context_tokens),
                                              std::max(config.trained_tokens / kPageTokens, sink_pages + 2))
                                   : budget_pages(config, needs.context_tokens);
  const bool holds_all = uint64_t{needs.pages_per_stream} * kPageTokens >= needs.context_tokens;
  // Beside the sinks there must be one page of the window, and the page that is being filled.
  if (!holds_all && needs.pages_per_stream < sink_pages + 2) {
    const uint32_t window_pages = std::max(2u, o.window == 0 ? 2u : (o.window - 1 + kPageTokens - 1) / kPageTokens + 1);
    return fail(WEIR_ERR_BUDGET, "policy sink with sinks=%u needs a budget of at least %u tokens, not %u", o.n_sink,
                (sink_pages + window_pages) * kPageTokens, config.budget_tokens);
  }
  const uint32_t window_pages = needs.pages_per_stream - std::min(needs.pages_per_stream, sink_pages);
  // A window of w tokens ends inside the open page, so it may touch one page more than w / 16.
  const uint32_t most = window_pages > 1 ? (window_pages - 1) * kPageTokens + 1 : needs.context_tokens;
  if (o.window == 0 && o.exact_mask) o.window = holds_all ? needs.context_tokens : most;
  if (!holds_all && o.window > most) {
    return fail(WEIR_ERR_BUDGET, "policy sink with window=%u needs a budget of at least %u tokens, not %u", o.window,
                (sink_pages + (o.window - 1 + kPageTokens - 1) / kPageTokens + 1) * kPageTokens, config.budget_tokens);
  }
  put_policy<SinkPolicy>(storage, out, needs, rules_of(o), config.attn_scale);
  return {};
}

}  // namespace weir
