// Policies that pin the prompt; see pinned_prompt.h. Hu et al. (RaaS, arXiv:2502.11147) keep the whole prompt and do
// not say what happens when it is longer than the budget; what the option "overflow" offers is ours.
#include "policy/pinned_prompt.h"

#include <algorithm>

namespace weir {

Policy* PinnedPromptPolicy::copy_to(PolicyStorage& storage) const {
  return new (storage.bytes) PinnedPromptPolicy(*this);
}

uint32_t PinnedPromptPolicy::pinned_after(const KvCache& kv, uint32_t n_tok) {
  // Prompts are pinned alike in all streams. But a page that the application pins may have left some streams before,
  // and is then pinned only in the others.
  uint32_t most = 0;
  for (uint32_t i = 0; i < kv.shape().n_streams(); ++i) {
    if (kv.window(i) != 0) continue;
    const StreamView s = kv.stream(i);
    uint32_t pinned = 0;
    for (uint32_t row = 0; row < s.n_pages; ++row) pinned += (s.flags[row] & kPageStays) != 0 ? 1u : 0u;
    // If the first tokens go to the open page, that becomes a prompt page, too.
    const bool open_joins = kv.n_tokens() % kPageTokens != 0 && (s.flags[s.n_pages - 1] & kPageStays) == 0;
    most = std::max(most, pinned + (open_joins ? 1u : 0u));
  }
  return most + kv.pages_to_open(n_tok);
}

// A pinned prompt may take all pages but min_decode_pages.
Status PinnedPromptPolicy::admit_prompt(const KvCache& kv, uint32_t n_tok) const {
  const bool holds_all = uint64_t{needs_.pages_per_stream} * kPageTokens >= needs_.context_tokens;
  if (!pinned_.pin_prompt || holds_all) return {};
  const uint32_t after = pinned_after(kv, n_tok);
  const uint32_t most = needs_.pages_per_stream - std::min(needs_.pages_per_stream, pinned_.min_decode_pages);
  if (after <= most) return {};
  const uint32_t base = after - kv.pages_to_open(n_tok), in_page = kv.n_tokens() % kPageTokens;
  const uint64_t fits =
      base > most ? 0 : uint64_t{most - base} * kPageTokens + (in_page != 0 ? kPageTokens - in_page : 0u);
  const uint64_t needed = (uint64_t{after} + pinned_.min_decode_pages) * kPageTokens;
  if (pinned_.overflow == PromptOverflow::kExtend) {
    return fail(WEIR_ERR_BUDGET,
                "policy %s: a prompt of %u tokens does not fit, %llu would; overflow=extend reserves what "
                "max_prompt_tokens says",
                name_, n_tok, static_cast<unsigned long long>(fits));
  }
  return fail(WEIR_ERR_BUDGET,
              "policy %s: a prompt of %u tokens does not fit beside %u pages for decoding, %llu would; a budget of "
              "%llu tokens holds it, or overflow=compress or extend",
              name_, n_tok, pinned_.min_decode_pages, static_cast<unsigned long long>(fits),
              static_cast<unsigned long long>(needed));
}

// A chunk of a prompt that is not pinned must not be so long that the chunk's own first pages leave.
uint32_t PinnedPromptPolicy::chunk_tokens(const KvCache& kv, uint32_t n_left, uint32_t batch_tokens) const {
  return pinned_.pin_prompt ? std::min(n_left, batch_tokens) : chunk_that_fits(kv, n_left, batch_tokens);
}

void PinnedPromptPolicy::prompt_end(KvCache& kv, uint32_t first) const {
  for (uint32_t i = 0; pinned_.stamps && i < kv.shape().n_streams(); ++i) {
    const StreamView s = kv.stream(i);
    for (uint32_t row = 0; row < s.n_pages; ++row) {
      if (s.first_pos[row] + s.len[row] > first) s.stamp[row] = kv.n_tokens();
    }
  }
}

Status read_pinned_prompt(OptionReader& options, bool with_hybrid, PinnedPromptOptions& o) {
  static constexpr const char* kWords[] = {"auto", "error", "extend", "compress", "hybrid"};
  auto overflow = static_cast<uint32_t>(o.overflow);
  WEIR_TRY(options.get_word("overflow", overflow, std::span(kWords).first(with_hybrid ? 5 : 4)));
  o.overflow = static_cast<PromptOverflow>(overflow);
  WEIR_TRY(options.get_bool("pin_prompt", o.pin_prompt));
  return o.pin_prompt ? Status() : options.contradicts("overflow", "pin_prompt=false");
}

Status plan_pinned_prompt(const char* policy, const PolicyConfig& config, const PinnedPromptOptions& o,
                          PolicyNeeds& needs) {
  needs.context_tokens = context_of(config);
  const uint32_t budget = budget_pages(config, needs.context_tokens);
  needs.pages_per_stream = budget;
  if (o.overflow == PromptOverflow::kExtend && config.max_prompt_tokens != 0) {
    const uint64_t extended = uint64_t{whole_pages(config.max_prompt_tokens)} + o.min_decode_pages;
    needs.pages_per_stream = static_cast<uint32_t>(
        std::min<uint64_t>(whole_pages(needs.context_tokens), std::max<uint64_t>(budget, extended)));
  }
  const bool holds_all = uint64_t{needs.pages_per_stream} * kPageTokens >= needs.context_tokens;
  const uint32_t least =
      o.pin_prompt ? o.min_decode_pages + 1 : o.min_decode_pages;  // pages; a pinned prompt takes at least one
  if (!holds_all && needs.pages_per_stream < least) {
    return fail(WEIR_ERR_BUDGET, "policy %s with min_decode_pages=%u needs a budget of at least %u tokens, not %u",
                policy, o.min_decode_pages, least * kPageTokens, config.budget_tokens);
  }
  const bool compress = o.overflow == PromptOverflow::kAuto || o.overflow == PromptOverflow::kCompress;
  needs.prompt_policy = compress && o.pin_prompt && !holds_all;
  needs.prompt_pages = o.pin_prompt && !holds_all ? needs.pages_per_stream - o.min_decode_pages : 0;
  return {};
}

}  // namespace weir
