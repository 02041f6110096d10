// Scores pages by their digests and selects the best; see selection.h.
#include "policy/selection.h"

#include "ops/page_score.h"
#include "ops/page_select.h"

namespace weir {

Status read_digest(OptionReader& options, DigestKind& digest, float& spread) {
  static constexpr const char* kWords[] = {"minmax", "cuboid_mean", "sphere_mean", "centroid", "mean_std", "sketch"};
  static constexpr DigestKind kKinds[] = {DigestKind::kMinMax,   DigestKind::kCuboidMean, DigestKind::kSphereMean,
                                          DigestKind::kCentroid, DigestKind::kMeanStd,    DigestKind::kSketch};
  if (options.has("spread")) digest = DigestKind::kMeanStd;  // the only kind that has one
  uint32_t index = 0;
  while (kKinds[index] != digest) ++index;
  WEIR_TRY(options.get_word("digest", index, kWords));
  digest = kKinds[index];
  WEIR_TRY(options.get_f32("spread", spread, 0.0f, 100.0f));
  return digest == DigestKind::kMeanStd ? Status() : options.contradicts("spread", "a digest other than mean_std");
}

Status read_agg(OptionReader& options, DigestKind digest, AggMode& agg) {
  static constexpr const char* kWords[] = {"sum_prob", "max_prob", "mean_raw",
                                           "max_raw",  "qhead",    "max_z"};  // in the order of AggMode
  // Only estimates that are near the logits have probabilities that can be compared: docs/papers.md, "Sketches".
  if (digest == DigestKind::kSketch) agg = AggMode::kSumProb;
  auto index = static_cast<uint32_t>(agg);
  WEIR_TRY(options.get_word("agg", index, kWords));
  agg = static_cast<AggMode>(index);
  return {};
}

Status read_selection(OptionReader& options, uint32_t n_layers, SelectionOptions& o) {
  WEIR_TRY(read_digest(options, o.digest, o.spread));
  WEIR_TRY(read_agg(options, o.digest, o.agg));
  if (o.skip_layers >= n_layers) o.skip_layers = 0;  // the default is for models with more layers
  WEIR_TRY(options.get_u32("skip_layers", o.skip_layers, 0, n_layers - 1));
  return options.get_u32("sink_pages", o.sink_pages, 0, 1u << 20);
}

void set_selection(StepRules& rules, const SelectionOptions& o, bool selects, uint32_t budget,
                   uint32_t candidate_flags) {
  rules.selects = selects;
  if (selects) rules.digest = o.digest;
  rules.agg = o.agg;
  rules.spread = o.spread;
  rules.select_budget = budget;
  rules.candidate_flags = candidate_flags;
  rules.sink_pages = o.sink_pages;
  rules.select_from_layer = o.skip_layers;
  rules.select_above_pages = budget;
}

}  // namespace weir
