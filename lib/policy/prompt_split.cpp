// Policies that keep the whole prompt beside a part of the budget for the answer: a step attends the best pages of a
// long prompt, and of the answer the pages stay whose stamps are the latest, within that part. For long prompts with
// long answers. Time per step O(prompt / 16 + budget), memory O(prompt + budget); neither depends on the length of the
// answer. How the budget is divided: docs/algorithms.md, "Hybrid".
#include <algorithm>

#include "policy/selection.h"
#include "policy/stamps.h"

namespace weir {
namespace {

// In pages. What a short prompt does not need of its part goes to the answer.
struct Split {
  uint32_t all = 0;     // attended in a step
  uint32_t prompt = 0;  // attended prompt pages, when the prompt is longer than `whole`
  uint32_t whole = 0;   // a prompt of at most this many pages is attended whole; at least `prompt`
  uint32_t prompt_part(uint32_t n_prompt) const { return n_prompt <= whole ? n_prompt : prompt; }
  uint32_t decode_part(uint32_t n_prompt) const { return all - prompt_part(n_prompt); }
  uint32_t min_decode() const { return all - prompt; }  // beside a prompt of which only a part is attended
  // What the answer has whatever prompt comes: one of `whole` pages may take more than `prompt`.
  uint32_t decode_part_of_any() const { return all - whole; }
};

class PromptSplitPolicy final : public PinnedPromptPolicy {
 public:
  PromptSplitPolicy(const char* name, const PolicyNeeds& needs, const StepRules& rules, float attn_scale,
                    const PinnedPromptOptions& o, const Split& split, uint32_t prompt_capacity)
      : PinnedPromptPolicy(name, needs, rules, attn_scale, o), split_(split), prompt_capacity_(prompt_capacity) {}
  Policy* copy_to(PolicyStorage& storage) const override { return new (storage.bytes) PromptSplitPolicy(*this); }

  Status admit_prompt(const KvCache& kv, uint32_t n_tok) const override {
    const uint32_t after = pinned_after(kv, n_tok);
    if (after <= prompt_capacity_) return {};
    const uint32_t base = after - kv.pages_to_open(n_tok), in_page = kv.n_tokens() % kPageTokens;
    const uint64_t fits = base > prompt_capacity_ ? 0
                                                  : uint64_t{prompt_capacity_ - base} * kPageTokens +
                                                        (in_page != 0 ? kPageTokens - in_page : 0u);
    return fail(WEIR_ERR_BUDGET,
                "a prompt of %u tokens does not fit, %llu would; the session keeps prompts of max_prompt_tokens in all",
                n_tok, static_cast<unsigned long long>(fits));
  }

  Status admit_pin(const KvCache& kv, uint32_t first, uint32_t end) const override {
    constexpr uint32_t kFree = 2;  // the open page, and one that can make room for the next
    const uint32_t least = split_.decode_part_of_any();
    for (uint32_t i = 0; !holds_all() && i < kv.shape().n_streams(); ++i) {
      if (kv.window(i) != 0) continue;
      const StreamView s = kv.stream(i);
      uint32_t n_kept = 0;
      for (uint32_t row = 0; row < s.n_pages; ++row) {
        const bool touched = s.first_pos[row] < end && s.first_pos[row] + s.len[row] > first;
        n_kept += (s.flags[row] & kPagePrompt) == 0 && (touched || (s.flags[row] & kPageStays) != 0) ? 1u : 0u;
      }
      if (n_kept + kFree > least) {
        return fail(WEIR_ERR_BUDGET,
                    "pinning positions %u..%u would leave %u of %u decode pages that can make room, %u are needed",
                    first, end - 1, least - std::min(least, n_kept), least, kFree);
      }
    }
    return Policy::admit_pin(kv, first, end);  // the table must have room, too
  }

 private:
  bool holds_all() const { return split_.all >= whole_pages(needs_.context_tokens); }

  Split split_;
  uint32_t prompt_capacity_;  // pages
};

}  // namespace

Status make_prompt_split(const char* name, const PolicyConfig& config, OptionReader& options, const StampOptions& o,
                         bool when_needed, PolicyStorage& storage, Policy*& out) {
  SelectionOptions selection;
  // With raas, `digest` is about its stamps.
  if (o.exact_mass == 0 || when_needed) selection.digest = o.digest;
  PolicyNeeds needs;
  needs.context_tokens = context_of(config);
  const uint32_t whole = whole_pages(needs.context_tokens);
  Split split;
  split.all = budget_pages(config, needs.context_tokens);
  // The first page holds the attention sinks. Nobody asked for it where it would take one of the answer's pages: a long
  // prompt is attended with one page beside the first ones, at least.
  const bool is_small = split.all < whole && split.all < 2 + o.pinned.min_decode_pages;
  selection.sink_pages = is_small ? 0 : 1;
  float rho = kPromptShare;
  WEIR_TRY(read_selection(options, config.n_layers, selection));
  WEIR_TRY(options.get_f32("rho", rho, 0.0f, 1.0f));
  WEIR_TRY(options.finish());
  if (selection.agg == AggMode::kQHead)
    return fail(WEIR_ERR_INVALID_ARG,
                "option agg=qhead: this policy stamps pages by one list per stream; the other modes make one");
  split.prompt = std::min(
      split.all, std::max(selection.sink_pages + 1, static_cast<uint32_t>(rho * static_cast<float>(split.all))));
  if (split.all < whole && split.min_decode() < o.pinned.min_decode_pages) {
    return fail(
        WEIR_ERR_BUDGET,
        "a budget of %u tokens with rho=%g leaves %u decode pages, %u are needed; give more tokens or a smaller rho",
        config.budget_tokens, static_cast<double>(rho), split.min_decode(), o.pinned.min_decode_pages);
  }
  split.whole = when_needed ? split.all - std::min(split.all, o.pinned.min_decode_pages) : split.prompt;
  if (split.all >= whole) split.whole = split.prompt = whole;
  // A prompt of `whole` pages fits in any case, so the session accepts one even if max_prompt_tokens is less.
  uint32_t prompt = config.max_prompt_tokens != 0 ? std::min(whole, whole_pages(config.max_prompt_tokens)) : whole;
  if (when_needed) prompt = std::max(prompt, split.whole);
  // The most pages that a prompt of up to that length and the answer's part take together.
  needs.pages_per_stream = prompt <= split.whole ? split.all : std::min(whole, prompt + split.min_decode());
  const bool holds_all = split.all >= whole;
  if (!holds_all) needs.prompt_pages = prompt;
  StepRules rules;
  set_stamps(rules, o, holds_all);
  rules.decode_pages = split.min_decode();
  rules.all_pages = split.all;
  rules.whole_prompt_pages = split.whole;
  set_selection(rules, selection, !holds_all, split.prompt, kPagePrompt);
  rules.select_above_pages = split.whole;
  put_policy<PromptSplitPolicy>(storage, out, name, needs, rules, config.attn_scale, o.pinned, split, prompt);
  return {};
}

}  // namespace weir
