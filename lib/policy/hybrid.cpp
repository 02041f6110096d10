// Hybrid: the whole prompt stays, and a step attends its best pages, as Quest does. Of the decoded text, pages are kept
// as RaaS keeps them, within a part of the budget. For long prompts with long answers. Time per step
// O(prompt / 16 + budget), memory O(prompt + budget); neither depends on the length of the answer.
// Source: Hu et al., arXiv:2502.11147, recommend the combination for long prompts without saying how. How the budget is
// divided is ours: docs/algorithms.md, "Hybrid".
#include "policy/recall.h"
#include "policy/stamps.h"

namespace weir {

Status make_hybrid(const PolicyConfig& config, PolicyStorage& storage, Policy*& out) {
  StampOptions o;
  OptionReader options("hybrid", config.options);
  WEIR_TRY(read_stamps(options, o));
  if (options.has("digest") && !options.has("stamp_source")) o.exact_mass = 1;  // here the digest is for the selection
  bool recall = false;
  WEIR_TRY(options.get_bool("recall", recall));
  if (recall) {
    float rho = kPromptShare;
    WEIR_TRY(options.get_f32("rho", rho, 0.0f, 1.0f));
    return make_stamped_recall("hybrid", config, options, o, &rho, storage, out);
  }
  WEIR_TRY(refuse_recall_options(options));
  return make_prompt_split("hybrid", config, options, o, false, storage, out);
}

}  // namespace weir
