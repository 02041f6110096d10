// Shared code of the policies that let the page with the oldest stamp leave: their options and the rules that follow
// from them. A page's stamp is the last step in which it mattered (docs/algorithms.md, "RaaS").
#pragma once

#include "policy/pinned_prompt.h"

namespace weir {

struct StampOptions {
  uint32_t rule = 1;  // StampRule: kAlpha
  float r = 0.5f;     // kTopR: the share of the ranked pages that a step stamps; 50 % as in the paper
  // kAlpha, 0..1: a page is stamped when a query head gives it more than this part of its attention. 0.99: only a page
  // from which the head takes nearly its whole result.
  float alpha = 0.99f;
  uint32_t exact_mass = 1;
  DigestKind digest = DigestKind::kMinMax;  // for stamps from digests; as in the paper
  float spread = 1.0f;                      // for kMeanStd
  uint32_t rank_all = 0;
  uint32_t by_gap = 0;                 // not the last hit decides who leaves, but that and the longest gap between hits
  RecentPages protect = {0, 0.5625f};  // 9/16 of the pages that can leave (docs/papers.md)
  PinnedPromptOptions pinned = {.stamps = true};
};

// Reads the options that all these policies have: stamps, protected pages and min_decode_pages.
Status read_stamps(OptionReader& options, StampOptions& o);

// Writes the options to a policy's rules. Where nothing ever leaves (holds_all), no stamps are needed.
void set_stamps(StepRules& rules, const StampOptions& o, bool holds_all);

// The policy `name` whose pages come back when a step wants them (stamped_recall.cpp). `rho`: the share of the pool
// that prompt pages may hold; null: they have none of their own. Reads the options of recall.
Status make_stamped_recall(const char* name, const PolicyConfig& config, OptionReader& options, StampOptions o,
                           const float* rho, PolicyStorage& storage, Policy*& out);

// The policy `name` that keeps prompts of any length beside a part of the budget for the answer, and attends the best
// pages of those that are too long (prompt_split.cpp). `rho`: most of the budget that the prompt takes. Only
// `when_needed`: a prompt that fits beside min_decode_pages is attended whole. Reads the options of the selection.
inline constexpr float kPromptShare = 0.5f;  // rho without options
Status make_prompt_split(const char* name, const PolicyConfig& config, OptionReader& options, const StampOptions& o,
                         bool when_needed, PolicyStorage& storage, Policy*& out);

}  // namespace weir
