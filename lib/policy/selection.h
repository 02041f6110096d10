// Shared code of the policies that attend only the best pages in a step: their options, and the selection itself
// (docs/algorithms.md, "Quest", "Digests and their estimates" and "How the heads of a group agree").
#pragma once

#include "policy/options.h"
#include "policy/policy.h"

namespace weir {

struct SelectionOptions {
  DigestKind digest = DigestKind::kSketch;  // docs/papers.md compares the kinds
  float spread = 1.0f;                      // kMeanStd: number of standard deviations above the mean
  AggMode agg = AggMode::kMaxRaw;           // with digests other than sketches
  uint32_t skip_layers = 2;  // these first layers attend everything: they are hardly sparse (Quest, sec. 3.1)
  // First pages, which hold the attention sinks: they are always attended, and never leave. Estimates of pages miss
  // them (docs/papers.md).
  uint32_t sink_pages = 1;
};

// The first pages of a policy that attends `pages`, unless the options say otherwise: beside them and the open page one
// page, at least, can be chosen.
constexpr uint32_t default_sinks(uint32_t pages) { return pages > 2 ? 1 : 0; }

// Reads "agg"; without it, sketches have kSumProb, other digests what `agg` is.
Status read_agg(OptionReader& options, DigestKind digest, AggMode& agg);
// Reads "digest" and "spread".
Status read_digest(OptionReader& options, DigestKind& digest, float& spread);
// Reads all of SelectionOptions. `n_layers`: layers of the model. o.sink_pages is what it is without options.
Status read_selection(OptionReader& options, uint32_t n_layers, SelectionOptions& o);

// Writes the options to a policy's rules; nothing is selected unless `selects`.
void set_selection(StepRules& rules, const SelectionOptions& o, bool selects, uint32_t budget,
                   uint32_t candidate_flags);

}  // namespace weir
