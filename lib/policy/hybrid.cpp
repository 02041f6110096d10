// Hybrid: the whole prompt stays, and a step attends its best pages, as Quest does. Of the decoded text, pages are kept
// as RaaS keeps them, within a part of the budget. For long prompts with long answers. Time per step
// O(prompt / 16 + budget), memory O(prompt + budget); neither depends on the length of the answer.
// Source: Hu et al., arXiv:2502.11147, recommend the combination for long prompts without saying how. How the budget is
// divided is ours: docs/algorithms.md, "Hybrid".
#include <algorithm>
#include <new>

#include "policy/raas.h"
#include "policy/recall.h"

namespace weir {
namespace {

constexpr float kRho = 0.5f;  // most of the budget that the prompt takes

// In pages. What a short prompt does not need of its part goes to the answer.
struct Split {
  uint32_t all = 0;     // attended in a step
  uint32_t prompt = 0;  // of these, prompt pages, when the prompt is longer than `whole`
  uint32_t whole = 0;   // a prompt of at most this many pages is attended whole; at least `prompt`
  uint32_t prompt_part(uint32_t n_prompt) const { return n_prompt <= whole ? n_prompt : prompt; }
  uint32_t decode_part(uint32_t n_prompt) const { return all - prompt_part(n_prompt); }
  uint32_t min_decode() const { return all - prompt; }  // beside a prompt of which only a part is attended
  // What the answer has whatever prompt comes: one of `whole` pages may take more than `prompt`.
  uint32_t decode_part_of_any() const { return all - whole; }
};

class HybridPolicy final : public RaasPolicy {
 public:
  HybridPolicy(const PolicyNeeds& needs, const RaasOptions& raas, const SelectionOptions& selection, const Split& split,
               uint32_t prompt_capacity, float scale)
      : RaasPolicy("hybrid", needs, raas, scale),
        selection_(selection),
        split_(split),
        prompt_capacity_(prompt_capacity) {}
  Policy* copy_to(PolicyStorage& storage) const override { return new (storage.bytes) HybridPolicy(*this); }

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

  Status select(OpContext& cx, const OpTable& ops, KvCache& kv, const SelectArgs& a, PageLists& lists) const override {
    const uint32_t n_prompt = prompt_pages(kv.stream(ruled_stream(kv, a.layer)));
    if (a.layer < selection_.skip_layers || n_prompt <= split_.whole) return {};
    return select_pages(cx, ops, kv, a, selection_, attn_scale_, split_.prompt, kPagePrompt, lists);
  }

  StepRules step_rules() const override {
    StepRules rules = RaasPolicy::step_rules();
    rules.decode_pages = split_.min_decode();
    rules.all_pages = split_.all;
    rules.whole_prompt_pages = split_.whole;
    set_selection(rules, selection_, needs_.page_lists, split_.prompt, kPagePrompt);
    rules.select_above_pages = split_.whole;
    return rules;
  }

 private:
  static uint32_t prompt_pages(const StreamView& s) {
    return static_cast<uint32_t>(
        std::count_if(s.flags, s.flags + s.n_pages, [](uint32_t flags) { return (flags & kPagePrompt) != 0; }));
  }

  bool holds_all() const override { return split_.all >= whole_pages(needs_.context_tokens); }

  // Prompt pages that were unpinned leave only when the table is full, not when the answer has used up its part.
  uint32_t staying_flags(const RoomArgs& room) const override {
    return room.is_full ? kPageStays : kPageStays | kPagePrompt;
  }

  // Decode pages are limited to the answer's part, even while the table has free rows that are meant for prompts.
  bool is_full(const StreamView& s, const RoomArgs& room) const override {
    if (room.phase != Phase::kDecode) return room.is_full;
    const uint32_t n_prompt = prompt_pages(s);
    return room.is_full || s.n_pages - n_prompt + room.opens > split_.decode_part(n_prompt);
  }

  SelectionOptions selection_;
  Split split_;
  uint32_t prompt_capacity_;  // pages
};

Status make(const PolicyConfig& config, OptionReader& options, const RaasOptions& raas, bool when_needed,
            PolicyStorage& storage, Policy*& out) {
  SelectionOptions selection;
  selection.digest = raas.exact_mass != 0 ? selection.digest : raas.digest;
  PolicyNeeds needs;
  needs.context_tokens = config.context_tokens != 0 ? config.context_tokens : config.trained_tokens;
  const uint32_t whole = whole_pages(needs.context_tokens);
  Split split;
  split.all = budget_pages(config, needs.context_tokens);
  // The first page holds the attention sinks. Nobody asked for it where it would take one of the answer's pages: a long
  // prompt is attended with one page beside the first ones, at least.
  const bool is_small = split.all < whole && split.all < 2 + raas.pinned.min_decode_pages;
  selection.sink_pages = is_small ? 0 : 1;
  float rho = kRho;
  WEIR_TRY(read_selection(options, config.n_layers, selection));
  WEIR_TRY(options.get_f32("rho", rho, 0.0f, 1.0f));
  WEIR_TRY(options.finish());
  if (selection.agg == AggMode::kQHead)
    return fail(WEIR_ERR_INVALID_ARG,
                "option agg=qhead: this policy stamps pages by one list per stream; the other modes make one");
  split.prompt = std::min(
      split.all, std::max(selection.sink_pages + 1, static_cast<uint32_t>(rho * static_cast<float>(split.all))));
  if (split.all < whole && split.min_decode() < raas.pinned.min_decode_pages) {
    return fail(
        WEIR_ERR_BUDGET,
        "a budget of %u tokens with rho=%g leaves %u decode pages, %u are needed; give more tokens or a smaller rho",
        config.budget_tokens, static_cast<double>(rho), split.min_decode(), raas.pinned.min_decode_pages);
  }
  split.whole = when_needed ? split.all - std::min(split.all, raas.pinned.min_decode_pages) : split.prompt;
  if (split.all >= whole) split.whole = split.prompt = whole;
  // A prompt of `whole` pages fits in any case, so the session accepts one even if max_prompt_tokens is less.
  uint32_t prompt = config.max_prompt_tokens != 0 ? std::min(whole, whole_pages(config.max_prompt_tokens)) : whole;
  if (when_needed) prompt = std::max(prompt, split.whole);
  // The most pages that a prompt of up to that length and the answer's part take together.
  needs.pages_per_stream = prompt <= split.whole ? split.all : std::min(whole, prompt + split.min_decode());
  if (split.all < whole) {
    needs.prompt_pages = prompt;
    needs.page_mass = raas.exact_mass != 0;
    needs.digest = selection.digest;
    needs.page_lists = true;
  }
  static_assert(sizeof(HybridPolicy) <= sizeof(storage.bytes));
  out = new (storage.bytes) HybridPolicy(needs, raas, selection, split, prompt, config.attn_scale);
  return {};
}

}  // namespace

Status make_raas_with_selection(const PolicyConfig& config, OptionReader& options, const RaasOptions& o,
                                PolicyStorage& storage, Policy*& out) {
  if (config.max_prompt_tokens == 0) {
    return fail(WEIR_ERR_INVALID_ARG,
                "overflow=hybrid keeps prompts beyond the budget; max_prompt_tokens must say how long they may be");
  }
  return make(config, options, o, true, storage, out);
}

Status make_hybrid(const PolicyConfig& config, PolicyStorage& storage, Policy*& out) {
  RaasOptions o;
  OptionReader options("hybrid", config.options);
  WEIR_TRY(read_raas_options(options, o));
  if (options.has("digest") && !options.has("stamp_source")) o.exact_mass = 1;  // here the digest is for the selection
  bool recall = false;
  WEIR_TRY(options.get_bool("recall", recall));
  if (recall) {
    float rho = kRho;
    WEIR_TRY(options.get_f32("rho", rho, 0.0f, 1.0f));
    return make_raas_with_recall("hybrid", config, options, o, &rho, storage, out);
  }
  WEIR_TRY(refuse_recall_options(options));
  return make(config, options, o, false, storage, out);
}

}  // namespace weir
