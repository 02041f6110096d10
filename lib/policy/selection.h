// What policies share that attend only the best pages of a step: their options, and the choice itself
// (docs/algorithms.md, "Quest", "Digests and their estimates" and "How the heads of a group agree").
#pragma once

#include "policy/options.h"
#include "policy/policy.h"

namespace weir {

struct SelectionOptions {
  DigestKind digest = DigestKind::kMinMax;  // docs/papers.md has the comparison
  float spread = 1.0f;                      // kMeanStd: standard deviations above the mean
  AggMode agg = AggMode::kMaxRaw;
  uint32_t skip_layers = 2;  // the first layers attend everything: they are hardly sparse (Quest, sec. 3.1)
  uint32_t sink_pages = 0;   // first pages that are always attended
};

// "digest" and "spread".
Status read_digest(OptionReader& options, DigestKind& digest, float& spread);
// All of SelectionOptions. `n_layers` is the model's.
Status read_selection(OptionReader& options, uint32_t n_layers, SelectionOptions& o);

// The same as rules: nothing is selected unless `selects`.
void set_selection(StepRules& rules, const SelectionOptions& o, bool selects, uint32_t budget,
                   uint32_t candidate_flags);

// Lists for one layer: of the pages with `candidate_flags` (0: all) the `budget` best, and all others; `scale` of the logits.
Status select_pages(OpContext& cx, const OpTable& ops, KvCache& kv, const SelectArgs& a, const SelectionOptions& o,
                    float scale, uint32_t budget, uint32_t candidate_flags, PageLists& lists);

}  // namespace weir
