// AdaKV: SnapKV whose budget is shared by the KV heads of a layer. The pages that the layer's heads look at most stay,
// whichever heads these are, and every head keeps a part of its own.
// Paper: Feng et al., "Ada-KV: Optimizing KV Cache Eviction by Adaptive Budget Allocation for Efficient LLM Inference",
// arXiv:2407.11550, sec. 3; docs/algorithms.md, "AdaKV".
// Differs from the paper: pages instead of tokens; all tables are as long, so that a head that keeps more of the prompt
// has less room for the answer, and none keeps more than a table holds; and a prompt that does not fit the tables is
// read in chunks that SnapKV compresses, before the heads share what is left at its end.
#include "policy/snapkv.h"

namespace weir {

Status make_ada(const PolicyConfig& config, PolicyStorage& storage, Policy& next, Policy*& out) {
  SnapKvOptions o;
  PolicyNeeds needs;
  OptionReader options("ada", config.options, OptionReader::kPromptPolicy);
  float min_share = 0.2f;  // as in kvpress
  WEIR_TRY(options.get_f32("prompt_alpha", min_share, 0.0f, 1.0f));
  WEIR_TRY(read_snapkv("ada", config, next, options, o, needs));
  o.shares = true;
  o.min_pages = static_cast<uint32_t>(min_share * static_cast<float>(o.pages));
  needs.heads_differ = true;
  out = put_snapkv(config, storage, next, needs, o);
  return {};
}

}  // namespace weir
